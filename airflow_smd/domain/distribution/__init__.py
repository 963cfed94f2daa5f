"""Every way that SageMaker can distribute a job: values, compiler, linter.

`Job.parse` reads what people have, `lint` tells all that is wrong with it, `compile_job` returns the exact
CreateTrainingJob request. Pure: what the installed AWS packages know comes in as a `Catalogue`.
Rules, tables and compiler are loaded at their first use: every parse of a DAG file pays for this import.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_smd.domain.distribution.job import Form, Job, Workload

if TYPE_CHECKING:
    from airflow_smd.domain.distribution.compiler import conventional_uris
    from airflow_smd.domain.distribution.images import Catalogue, image_of
    from airflow_smd.domain.distribution.launch import launch_hyperparameters
    from airflow_smd.domain.distribution.rules import RULES
    from airflow_smd.domain.distribution.shapes import Shape
    from airflow_smd.domain.distribution.values import (
        MPI,
        SMDDP,
        Heterogeneous,
        MultiWorkerMirrored,
        ParameterServer,
        PyTorchDDP,
        PyTorchParameters,
        PyTorchXLA,
        SMPv1,
        SMPv2,
        SMPv2Parameters,
        Strategy,
        TensorFlowParameters,
        Torchrun,
        Trainium,
        read_strategy,
    )
    from airflow_smd.errors import Problem

_HOMES: Mapping[str, tuple[str, ...]] = {
    "compiler": ("conventional_uris",),
    "images": ("Catalogue", "image_of"),
    "launch": ("launch_hyperparameters",),
    "rules": ("RULES",),
    "shapes": ("Shape",),
    "values": (
        *("MPI", "SMDDP", "Heterogeneous", "MultiWorkerMirrored", "ParameterServer", "PyTorchDDP"),
        *("PyTorchParameters", "PyTorchXLA", "SMPv1", "SMPv2", "SMPv2Parameters", "Strategy"),
        *("TensorFlowParameters", "Torchrun", "Trainium", "read_strategy"),
    ),
}

__all__ = [
    "MPI",
    "RULES",
    "SMDDP",
    "Catalogue",
    "Form",
    "Heterogeneous",
    "Job",
    "MultiWorkerMirrored",
    "ParameterServer",
    "PyTorchDDP",
    "PyTorchParameters",
    "PyTorchXLA",
    "SMPv1",
    "SMPv2",
    "SMPv2Parameters",
    "Shape",
    "Strategy",
    "TensorFlowParameters",
    "Torchrun",
    "Trainium",
    "Workload",
    "compile_job",
    "conventional_uris",
    "image_of",
    "launch_hyperparameters",
    "lint",
    "read_strategy",
]


def lint(job: Job, catalogue: Catalogue, silenced: Iterable[str] = ()) -> tuple[Problem, ...]:
    """Return every problem of a job, the worst first, each with its remedy.

    Args:
        job: what to look at.
        catalogue: the installed packages' images and API model; without images none are checked.
        silenced: names of rules to leave out.
    """
    from airflow_smd.domain.distribution.linter import lint as run

    return run(job, catalogue, silenced)


def compile_job(
    job: Job,
    catalogue: Catalogue,
    *,
    name: str,
    source_uri: str,
    output_uri: str,
    overrides: Mapping[str, Any] | None = None,
    silenced: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the CreateTrainingJob request, identical to SDK v2's where SDK v2 is right.

    Args:
        job: what to run.
        catalogue: the installed packages' images and API model.
        name: name of the training job.
        source_uri: S3 URI of the code's tar.gz, unless `source_dir` is one already.
        output_uri: where the model goes, unless `output_path` says so.
        overrides: laid over the request last; mappings merge, None removes a field.
        silenced: rules that must not stop the job.

    Raises InvalidInput with every problem of the job and of the finished request.
    """
    from airflow_smd.domain.distribution.compiler import compile_job as run

    return run(
        job,
        catalogue,
        name=name,
        source_uri=source_uri,
        output_uri=output_uri,
        overrides=overrides,
        silenced=frozenset(silenced),
    )


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
