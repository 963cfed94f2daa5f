"""Every way that SageMaker can distribute a job: values, compiler, linter.

`Job.parse` reads what people have, `lint` tells all that is wrong with it, `compile_job` returns the exact
CreateTrainingJob request. Pure: what the installed AWS packages know comes in as a `Catalogue`.
"""

from airflow_smd.domain.distribution.compile import compile_job, conventional_uris, launch_hyperparameters
from airflow_smd.domain.distribution.images import Catalogue, image_of
from airflow_smd.domain.distribution.job import Form, Job, Workload
from airflow_smd.domain.distribution.lint import lint
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
