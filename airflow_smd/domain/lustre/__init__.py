"""FSx for Lustre: what a training run needs, what FSx accepts, and the plan that costs the run least."""

from airflow_smd.domain.lustre.facts import Facts, load
from airflow_smd.domain.lustre.forecast import Forecast, forecast
from airflow_smd.domain.lustre.need import Need, need_problems
from airflow_smd.domain.lustre.plan import Alternative, LustrePlan, OtherInput, curve, plan
from airflow_smd.domain.lustre.requests import create_request
from airflow_smd.domain.lustre.update import update_problems, update_request
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
    "Alternative",
    "DeploymentType",
    "Facts",
    "Forecast",
    "InputMode",
    "Limit",
    "LustreConfig",
    "LustrePlan",
    "MetadataMode",
    "Need",
    "OtherInput",
    "StorageType",
    "create_request",
    "curve",
    "forecast",
    "load",
    "need_problems",
    "plan",
    "problems",
    "update_problems",
    "update_request",
]
