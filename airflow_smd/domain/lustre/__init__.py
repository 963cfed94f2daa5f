"""FSx for Lustre: what a training run needs, what FSx accepts, and the plan that costs the run least."""

from airflow_smd.domain.lustre.facts import Facts, load
from airflow_smd.domain.lustre.requests import create_request
from airflow_smd.domain.lustre.validity import problems
from airflow_smd.domain.lustre.values import (
    Access,
    DeploymentType,
    InputMode,
    Limit,
    LustreConfig,
    MetadataMode,
    StorageType,
)

__all__ = [
    "Access",
    "DeploymentType",
    "Facts",
    "InputMode",
    "Limit",
    "LustreConfig",
    "MetadataMode",
    "StorageType",
    "create_request",
    "load",
    "problems",
]
