"""The tables that decide: framework versions, parameters, estimator arguments, Debugger rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, get_args, get_type_hints

Json = None | bool | int | float | str | list[Any] | dict[str, Any]

DISTRIBUTION_KEYS: Mapping[str, tuple[str, ...]] = {
    "mpi": ("enabled", "processes_per_host", "custom_mpi_options"),
    "smdistributed": ("dataparallel", "modelparallel"),
    "torch_distributed": ("enabled",),
    "pytorchddp": ("enabled", "custom_mpi_options"),
    "pytorchxla": ("enabled",),
    "parameter_server": ("enabled",),
    "multi_worker_mirrored_strategy": ("enabled",),
    "instance_groups": (),
}
"""Every key that SDK 2.257 reads in `distribution`, with the keys that it reads inside."""
SMDISTRIBUTED_KEYS: Mapping[str, tuple[str, ...]] = {
    "dataparallel": ("enabled", "custom_mpi_options"),
    "modelparallel": ("enabled", "parameters"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Supported:
    """One version of a framework that runs one strategy."""

    framework: str
    version: str
    strategy: str
    """smddp, torchrun, torchrun-trainium, smp1 or smp2."""
    library: str
    """The strategy's own version inside that container, where documented."""
    cuda: str
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of the model parallelism libraries."""

    library: str
    """smp1 or smp2."""
    name: str
    kind: str
    frameworks: tuple[str, ...]
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    since: str
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One keyword of the SDK v2 estimators."""

    name: str
    kind: str
    field: str
    """Where it goes in CreateTrainingJob, empty if nowhere."""
    estimators: tuple[str, ...]
    renamed_to: str
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DebuggerRule:
    """One built-in rule of SageMaker Debugger."""

    name: str
    kind: str
    """profiler or debugger."""
    parameters: Mapping[str, str]
    collections: tuple[Mapping[str, Any], ...]
    framework_profiling: bool
    """Needs framework profiling, which ends with PyTorch 2.0 and TensorFlow 2.11."""
    source: str
    date: str
    rule: str = ""


def read_table(name: str) -> list[dict[str, Any]]:
    """Return the rows of `domain/tables/<name>.json`."""
    rows: list[dict[str, Any]] = json.loads(
        (files("airflow_smd.domain") / "tables" / f"{name}.json").read_text("utf-8")
    )
    return rows


@cache
def supported() -> tuple[Supported, ...]:
    """Return the matrix of framework versions and strategies."""
    return tuple(Supported(**row) for row in read_table("frameworks"))


@cache
def parameters(library: str) -> Mapping[str, Parameter]:
    """Return the parameters of smp1 or smp2 by name."""
    rows = (_tuples(Parameter, row) for row in read_table("parameters"))
    return {row["name"]: Parameter(**row) for row in rows if row["library"] == library}


@cache
def arguments() -> Mapping[str, Argument]:
    """Return the estimators' keywords by name, old names included."""
    return {row["name"]: Argument(**_tuples(Argument, row)) for row in read_table("arguments")}


@cache
def debugger_rules(kind: str) -> Mapping[str, DebuggerRule]:
    """Return Debugger's built-in rules by name."""
    rows = (_tuples(DebuggerRule, row) for row in read_table("debugger_rules"))
    return {row["name"]: DebuggerRule(**row) for row in rows if row["kind"] == kind}


@cache
def types(library: str) -> tuple[str, ...]:
    """Return the instance types of smddp or smp1, or those whose EFA the container toolkit sets up itself."""
    return tuple(row["type"] for row in read_table("instance_support") if row["library"] == library)


def versions(framework: str, strategy: str) -> tuple[str, ...]:
    """Return the versions of a framework that run a strategy, oldest first."""
    found = {row.version for row in supported() if (row.framework, row.strategy) == (framework, strategy)}
    return tuple(sorted(found, key=version_key))


def version_key(version: str) -> tuple[int, ...]:
    """Return a version as numbers, so that 1.10 comes after 1.9; what is no number counts as 0."""
    return tuple(int(part) if part.isascii() and part.isdigit() else 0 for part in version.split("."))


def nearest(version: str, among: tuple[str, ...]) -> str:
    """Return the closest version in `among`: the same major and minor first, then the distance."""
    if not among:
        return ""

    def number(text: str) -> tuple[int, int, int]:
        major, minor, patch = (*version_key(text), 0, 0, 0)[:3]
        return (major, minor, patch)

    here = number(version)
    return min(
        reversed(among),
        key=lambda other: tuple(abs(a - b) for a, b in zip(number(other), here, strict=True)),
    )


def suggestion(word: str, known: tuple[str, ...]) -> str:
    """Return the known word that was probably meant, or an empty string."""
    return next(iter(get_close_matches(word, known, n=1, cutoff=0.6)), "")


def _tuples(kind: type, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) and name in _generic(kind) else value
        for name, value in row.items()
    }


@cache
def _generic(kind: type) -> frozenset[str]:
    """Return the fields that hold several values; evaluating annotations row by row takes most of a lint."""
    return frozenset(name for name, hint in get_type_hints(kind).items() if get_args(hint))
