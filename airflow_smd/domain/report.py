"""What a run did and cost, for people and for the next run's plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_smd.domain.cost import Cost, CostLine, instances_line, run_cost
from airflow_smd.domain.units import format_bytes

VERSION = 1
BOOKKEEPING = ("epoch", "step", "learning_rate")
"""Metrics that say where a training was, not how good it is."""


def run_report(
    *,
    training: Mapping[str, Any],
    preprocess: Mapping[str, Any] | None,
    file_system: Mapping[str, Any] | None,
    image: Mapping[str, Any] | None,
    file_system_seconds: float,
    region: str,
) -> dict[str, Any]:
    """Return the report as JSON: `summary` is text by label, the rest is what the tasks returned.

    Args:
        training: the result of the training task.
        preprocess: the result of the preprocessing task, if there was one.
        file_system: the result of the task that made the file system, if there was one.
        image: the result of the image task, if there was one.
        file_system_seconds: how long the file system has lived.
        region: AWS Region, for the prices.
    """
    cost = _cost(training, preprocess, file_system, file_system_seconds, region)
    summary = {
        **(_dataset(preprocess) if preprocess else {}),
        **(_file_system(file_system) if file_system else {}),
        **({"Image": image["image_uri"]} if image else {}),
        "Training job": training["job_name"],
        "Instances": f"{training['instance_count']} × {training['instance_type']}",
        **{
            name.replace("_", " ").capitalize(): f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
            for name, value in training["metrics"].items()
            if name not in BOOKKEEPING
        },
        "Seconds, training": f"{training['seconds'] or 0:.1f}",
        "Would have cost on AWS": str(cost),
    }
    return {
        "version": VERSION,
        "summary": summary,
        "cost": {
            "usd": cost.total_usd,
            "at_least_usd": cost.known_usd,
            "lines": [{"what": line.what, "usd": line.usd, "basis": line.basis} for line in cost.lines],
        },
        "training": dict(training),
        "preprocess": dict(preprocess or {}),
        "file_system": dict(file_system or {}),
        "image": dict(image or {}),
    }


def _dataset(preprocess: Mapping[str, Any]) -> dict[str, str]:
    how = "reused" if preprocess["reused"] else f"made in {preprocess['seconds']:.1f} s"
    text = (
        f"{preprocess['samples']:,} samples in {preprocess['shards']} shards,"
        f" {format_bytes(preprocess['bytes'])}, {how}"
    )
    return {"Data set": text}


def _file_system(file_system: Mapping[str, Any]) -> dict[str, str]:
    plan = file_system["plan"]
    if not file_system["file_system_id"]:
        return {"File system": f"none, {file_system['input_mode']} serves", "Why": "\n".join(plan["why"])}
    tier = f"-{plan['per_unit_storage_throughput']}" if plan["per_unit_storage_throughput"] else ""
    size = f"{plan['storage_capacity_gib']:,} GiB, {plan['read_mbps']:,.0f} MB/s"
    return {"File system": f"{plan['deployment_type']}{tier}, {size}", "Why": "\n".join(plan["why"])}


def _cost(
    training: Mapping[str, Any],
    preprocess: Mapping[str, Any] | None,
    file_system: Mapping[str, Any] | None,
    file_system_seconds: float,
    region: str,
) -> Cost:
    lines = [
        instances_line(
            "training",
            instance_type=training["instance_type"],
            count=training["instance_count"],
            seconds=training["billable_seconds"] or training["seconds"] or 0,
            region=region,
        )
    ]
    if preprocess and not preprocess["reused"]:
        lines.append(
            instances_line(
                "preprocessing",
                instance_type=preprocess["instance_type"],
                count=preprocess["instance_count"],
                seconds=preprocess["seconds"],
                region=region,
            )
        )
    if file_system and file_system["file_system_id"]:
        per_hour = file_system["plan"]["usd_per_hour"]
        basis = f"{file_system_seconds:.0f} s" + ("" if per_hour else "; no price for it")
        usd = None if per_hour is None else per_hour * file_system_seconds / 3600
        lines.append(CostLine(what="file system", usd=usd, basis=basis))
    return run_cost(lines)
