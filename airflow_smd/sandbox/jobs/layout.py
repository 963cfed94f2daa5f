"""/opt/ml of one host: which files SageMaker puts where, and with what in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_smd.sandbox.jobs.hosts import Bind
from airflow_smd.sandbox.jobs.machines import Machine
from airflow_smd.sandbox.jobs.network import INTERFACE

ML = "/opt/ml"
CHECKPOINTS = f"{ML}/checkpoints"
_TRAINING_DIRECTORIES = ("input/config", "input/data", "model", "output/data", "code")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the paths that a container knows lie on this machine."""

    directory: Path
    """The host's own directory in the sandbox's home."""

    @property
    def ml(self) -> Path:
        """Return what is /opt/ml in the container."""
        return self.directory / "ml"

    def real(self, path: str) -> Path:
        """Return the real directory behind an absolute path of the container."""
        if path == ML or path.startswith(f"{ML}/"):
            return self.ml / path[len(ML) + 1 :]
        return self.directory / "elsewhere" / path.lstrip("/")

    def bind(self, path: str) -> list[Bind]:
        """Return the bind that a namespace host needs for a path that is not below /opt/ml."""
        inside = path == ML or path.startswith(f"{ML}/")
        return [] if inside else [Bind(source=self.real(path), target=path)]

    def rewritten(self, text: str) -> str:
        """Return text with /opt/ml spelled as it really is, for hosts without a file system of their own."""
        return text.replace(f"{ML}/", f"{self.ml}/") if f"{ML}/" in text else text


def write_training(
    layout: Layout, request: Mapping[str, Any], current: Machine, machines: Sequence[Machine]
) -> None:
    """Create the directories and the three configuration files of a training host."""
    for name in _TRAINING_DIRECTORIES:
        (layout.ml / name).mkdir(parents=True, exist_ok=True)
    config = layout.ml / "input" / "config"
    _write(config / "hyperparameters.json", request.get("HyperParameters") or {})
    _write(config / "resourceconfig.json", training_resources(current, machines))
    channels = {
        channel["ChannelName"]: _channel(channel, request["AlgorithmSpecification"]["TrainingInputMode"])
        for channel in request.get("InputDataConfig") or []
        if uses_channel(channel, current)
    }
    _write(config / "inputdataconfig.json", channels)


def write_processing(
    layout: Layout, described: Mapping[str, Any], current: Machine, machines: Sequence[Machine]
) -> None:
    """Create the two configuration files of a processing host."""
    config = layout.ml / "config"
    config.mkdir(parents=True, exist_ok=True)
    _write(config / "processingjobconfig.json", described)
    _write(config / "resourceconfig.json", training_resources(current, machines))


def training_resources(current: Machine, machines: Sequence[Machine]) -> dict[str, Any]:
    """Return resourceconfig.json; hosts are sorted by name, as SageMaker sorts them."""
    groups = list(dict.fromkeys((machine.group, machine.instance_type) for machine in machines))
    return {
        "current_host": current.name,
        "current_instance_type": current.instance_type,
        "current_group_name": current.group,
        "hosts": sorted(machine.name for machine in machines),
        "instance_groups": [
            {
                "instance_group_name": group,
                "instance_type": instance_type,
                "hosts": sorted(machine.name for machine in machines if machine.group == group),
            }
            for group, instance_type in groups
        ],
        "network_interface_name": INTERFACE,
    }


def uses_channel(channel: Mapping[str, Any], machine: Machine) -> bool:
    """Tell whether a channel is meant for a host's instance group."""
    groups = (channel["DataSource"].get("S3DataSource") or {}).get("InstanceGroupNames")
    return not groups or machine.group in groups


def _channel(channel: Mapping[str, Any], default_mode: str) -> dict[str, str]:
    source = channel["DataSource"].get("S3DataSource") or {}
    described = {
        "TrainingInputMode": channel.get("InputMode") or default_mode,
        "S3DistributionType": source.get("S3DataDistributionType") or "FullyReplicated",
        "RecordWrapperType": channel.get("RecordWrapperType") or "None",
    }
    return described | ({"ContentType": channel["ContentType"]} if channel.get("ContentType") else {})


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, default=str))
