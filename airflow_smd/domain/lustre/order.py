"""What to create for a task, sized from its arguments, and what the task returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow_smd.domain.cost import load_prices
from airflow_smd.domain.lustre.arguments import (
    ARGUMENTS,
    Dataset,
    Reading,
    read_config,
    read_dataset,
    read_need,
)
from airflow_smd.domain.lustre.facts import GIB_PER_TIB, Facts, load
from airflow_smd.domain.lustre.lifecycle import DATASET_PATH, FileSystem
from airflow_smd.domain.lustre.need import Need, need_problems
from airflow_smd.domain.lustre.network import ADDRESSES_PER_NODE
from airflow_smd.domain.lustre.plan import LustrePlan, OtherInput, plan
from airflow_smd.domain.lustre.validity import problems
from airflow_smd.domain.lustre.values import InputMode, LustreConfig
from airflow_smd.errors import InvalidInput, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A file system to create, or the reason to create none."""

    dataset: Dataset
    config: LustreConfig | None
    """None: the training reads from S3 in `input_mode`."""
    input_mode: InputMode
    plan: Mapping[str, Any]
    """As JSON, with the reasons and the price."""
    addresses: int = 0
    """Private addresses that the file system and the nodes take in the subnet."""
    associated: bool = True
    """The data set is linked by an association; else by ImportPath, at creation."""

    @property
    def path(self) -> str:
        """Return where in the file system the data set lies, without the mount name.

        An association puts the prefix's content at its own path; ImportPath keeps the whole keys.
        """
        prefix = self.dataset.uri.removeprefix("s3://").partition("/")[2].rstrip("/")
        return DATASET_PATH if self.associated else f"/{prefix}" if prefix else ""


def read_order(arguments: Mapping[str, Any], region: str) -> tuple[Order | None, list[Problem]]:
    """Return what to create, and everything that is wrong with it; no order when it cannot be made out.

    Args:
        arguments: those of LustreCreateOperator, by name, as they are after rendering.
        region: AWS Region of the task's connection.
    """
    facts, reading = load(), Reading()
    values = {name: reading.read(name, arguments[name], *how) for name, how in ARGUMENTS.items()}
    dataset, override = read_dataset(arguments["dataset"], reading), arguments.get("plan")
    if override is not None:
        config = read_config(override, reading)
        if reading.problems or config is None or dataset is None:
            return None, reading.problems
        shown = {"why": ["The file system was chosen by the user."], **_figures(config, region, facts)}
        return _linked(dataset, config, shown, values["nodes"], region, facts)
    need = read_need(arguments, values, dataset, region, reading) if dataset else None
    if need is not None:
        reading.problems += need_problems(need, facts)
    if reading.problems or need is None or dataset is None:
        return None, reading.problems
    try:
        planned = plan(need, facts=facts)
    except InvalidInput as error:
        return None, list(error.problems)
    return _chosen(planned, values["when_not_worth_it"], dataset, need, facts)


def _chosen(
    planned: LustrePlan | OtherInput, when_not_worth_it: str, dataset: Dataset, need: Need, facts: Facts
) -> tuple[Order | None, list[Problem]]:
    why = planned.why
    if isinstance(planned, OtherInput):
        if when_not_worth_it == "skip":
            shown = {"why": list(why), "usd_per_hour": 0.0, "required_mbps": planned.required_mbps}
            order = Order(dataset=dataset, config=None, input_mode=planned.input_mode, plan=shown)
            return order, []
        if planned.file_system is None:
            return None, [_none_to_be_had(when_not_worth_it, why)]
        advice = f"{planned.input_mode} would do without a file system, but one was asked for: {why[0]}"
        planned = planned.file_system
        why = (*planned.why, advice)
    shown = {
        **_figures(planned.config, need.region, facts),
        "required_mbps": planned.required_mbps,
        "target_mbps": planned.target_mbps,
        "read_mbps": planned.read_mbps,
        "ram_cache_gib": planned.ram_cache_gib,
        "epoch_seconds": list(planned.epoch_seconds),
        "limited_by": str(planned.limited_by),
        "usd_per_hour": planned.usd_per_hour,
        "usd_per_run": planned.usd_per_run,
        "why": list(why),
    }
    return _linked(dataset, planned.config, shown, need.nodes, need.region, facts)


def _figures(config: LustreConfig, region: str, facts: Facts) -> dict[str, Any]:
    """Return what a file system is, reads and costs, as JSON."""
    family = facts.families.get((config.deployment_type, config.storage_type))
    speed = family.speed(config.per_unit_storage_throughput) if family else None
    tib = (config.storage_capacity_gib or 0) / GIB_PER_TIB
    return {
        "deployment_type": str(config.deployment_type),
        "storage_type": str(config.storage_type),
        "storage_capacity_gib": config.storage_capacity_gib or 0,
        "per_unit_storage_throughput": config.per_unit_storage_throughput,
        "efa": config.efa,
        "read_mbps": min(speed.read_mbps, speed.network_mbps) * tib
        if speed
        else float(config.throughput_capacity_mbps or 0),
        "usd_per_hour": load_prices().file_system_usd_per_hour(config, region),
    }


def _linked(
    dataset: Dataset,
    config: LustreConfig,
    shown: Mapping[str, Any],
    nodes: int,
    region: str,
    facts: Facts,
) -> tuple[Order, list[Problem]]:
    family = facts.families.get((config.deployment_type, config.storage_type))
    associated = family is None or family.associations
    found = []
    if associated:
        config = replace(config, associations=max(1, config.associations))
    elif family and family.import_path:
        config = replace(config, import_path=dataset.uri)
    else:
        found.append(_no_link(config))
    found += problems(config, region, facts)
    order = Order(
        dataset=dataset,
        config=config,
        input_mode=InputMode.FSX_LUSTRE,
        plan=shown,
        addresses=addresses(config, facts) + ADDRESSES_PER_NODE * nodes,
        associated=associated,
    )
    return order, found


def addresses(config: LustreConfig, facts: Facts) -> int:
    """Return the private addresses of a file system: one a server (user guide, using-fsx-lustre)."""
    family = facts.families.get((config.deployment_type, config.storage_type))
    tier = config.per_unit_storage_throughput
    speed = family.speed(tier) if family else None
    of_efa = family.step_gib(tier, efa=True) if family and config.efa else None
    server_gib = of_efa or (speed.server_gib if speed else None) or 2400
    metadata_servers = max(1, math.ceil((config.metadata_iops or 0) / 12_000))
    return math.ceil((config.storage_capacity_gib or server_gib) / server_gib) + metadata_servers


def result(order: Order, file_system: FileSystem, security_group_ids: Sequence[str]) -> dict[str, Any]:
    """Return what the create task returns: everything that a training job needs of the file system."""
    return {
        "file_system_id": file_system.file_system_id,
        "mount_name": file_system.mount_name,
        "dns_name": file_system.dns_name,
        "vpc_config": {
            "Subnets": list(file_system.subnet_ids),
            "SecurityGroupIds": list(security_group_ids),
        },
        "data_source": file_system.data_source(order.path),
        "input_mode": "File",  # the one mode that SageMaker takes with a file system
        "plan": dict(order.plan),
        "created_at": datetime.fromtimestamp(file_system.created_at, UTC).isoformat(),
    }


def result_without(order: Order) -> dict[str, Any]:
    """Return what the create task returns when it made none: the channel that reads from S3."""
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": order.dataset.uri,
        "S3DataDistributionType": "FullyReplicated",
    }
    # S3 Express One Zone is a kind of bucket, not a mode: its objects are streamed like others
    mode = InputMode.FAST_FILE if order.input_mode is InputMode.S3_EXPRESS else order.input_mode
    return {
        "file_system_id": None,
        "mount_name": None,
        "dns_name": None,
        "vpc_config": None,
        "data_source": {"S3DataSource": source},
        "input_mode": str(mode),
        "plan": dict(order.plan),
        "created_at": None,
    }


def _none_to_be_had(value: str, why: Sequence[str]) -> Problem:
    return Problem(
        rule="no-file-system",
        field="when_not_worth_it",
        value=value,
        message=f"No file system can be had for this run: {' '.join(why)}",
        remedy="Say `skip` to read from S3 instead.",
    )


def _no_link(config: LustreConfig) -> Problem:
    return Problem(
        rule="no-link-to-s3",
        field="plan.storage_type",
        value=str(config.storage_type),
        message=f"{config.deployment_type} on {config.storage_type} cannot be linked to S3: it stays empty.",
        remedy="Use SCRATCH_2, or PERSISTENT_2 on SSD.",
    )
