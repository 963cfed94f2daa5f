"""Every rule of the linter, by family: a module is a family, a function is a rule."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_smd.domain.distribution.rules import (
    arguments,
    cluster,
    compiler,
    data,
    debugger,
    images,
    keys,
    launchers,
    limits,
    mpi_options,
    processes,
    smp1,
    smp2,
)
from airflow_smd.domain.distribution.rules.base import RULES, Rule
from airflow_smd.errors import Severity

__all__ = ["ALWAYS", "RULES", "Rule"]

FAMILIES = (
    keys,
    arguments,
    launchers,
    compiler,
    smp1,
    smp2,
    processes,
    cluster,
    mpi_options,
    images,
    data,
    limits,
    debugger,
)

ALWAYS: Mapping[str, tuple[Severity, str]] = {
    "not-json": (Severity.ERROR, "A value that JSON cannot hold."),
    "argument-type": (Severity.ERROR, "An argument of the wrong type."),
    "unknown-argument": (Severity.ERROR, "An argument that the estimator does not have."),
    "renamed-argument": (Severity.ERROR, "An argument under its old and its new name at once."),
    "unknown-key": (Severity.ERROR, "A key that nothing reads."),
    "unknown-estimator": (Severity.ERROR, "An estimator that is none of SDK v2's four."),
    "strategy-not-a-mapping": (Severity.ERROR, "A strategy whose settings are not a mapping."),
    "channel-input": (Severity.ERROR, "An input that is neither an S3 URI nor a file system."),
    "duplicate-channel": (Severity.ERROR, "Two channels of one name."),
    "missing-argument": (Severity.ERROR, "An argument without which there is no request."),
    "framework-version": (Severity.ERROR, "A version for which there is no image; the nearest is named."),
    "python-version": (Severity.ERROR, "A Python version that the image does not have."),
    "image-region": (Severity.ERROR, "A region without the image."),
    "image-processor": (Severity.ERROR, "An image that does not exist for this kind of instance."),
    "unknown-field": (Severity.ERROR, "A field that the installed API model does not have."),
    "missing-field": (Severity.ERROR, "A required field of the API."),
    "request-type": (Severity.ERROR, "A field of the wrong type."),
    "request-limit": (Severity.ERROR, "A value beyond the API's limits."),
    "request-pattern": (Severity.ERROR, "A value in a form that the API refuses."),
    "request-choice": (Severity.ERROR, "A value that the API does not list."),
    "not-one-strategy": (Severity.ERROR, "A dictionary that no single strategy value gives."),
}
"""What reading and compiling find by themselves: name to severity and summary."""
