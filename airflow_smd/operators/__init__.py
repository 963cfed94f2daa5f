"""The tasks. Names load when they are used, since Airflow parses DAG files every few seconds."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_smd.operators.image import TrainingImageBuildOperator as TrainingImageBuildOperator
    from airflow_smd.operators.lustre import LustreCreateOperator as LustreCreateOperator
    from airflow_smd.operators.lustre import LustreDeleteOperator as LustreDeleteOperator
    from airflow_smd.operators.preflight import TrainingPreflightOperator as TrainingPreflightOperator
    from airflow_smd.operators.preprocess import SageMakerPreprocessOperator as SageMakerPreprocessOperator
    from airflow_smd.operators.report import TrainingReportOperator as TrainingReportOperator
    from airflow_smd.operators.sweep import SweepOperator as SweepOperator
    from airflow_smd.operators.training import (
        SageMakerDistributedTrainingOperator as SageMakerDistributedTrainingOperator,
    )

_MODULES = {
    "LustreCreateOperator": "lustre",
    "LustreDeleteOperator": "lustre",
    "SageMakerDistributedTrainingOperator": "training",
    "SageMakerPreprocessOperator": "preprocess",
    "SweepOperator": "sweep",
    "TrainingImageBuildOperator": "image",
    "TrainingPreflightOperator": "preflight",
    "TrainingReportOperator": "report",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
