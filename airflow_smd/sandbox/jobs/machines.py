"""The machines of a job: which hosts there are, of which type, with how many GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import airflow_smd

SOLE_GROUP = "homogeneousCluster"
"""How SageMaker names the group of a job without instance groups (resourceconfig.json)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One host of a job."""

    name: str
    """`algo-1` and so on, also its hostname."""
    number: int
    """From 0, over all groups."""
    group: str
    instance_type: str

    @property
    def gpus(self) -> int:
        """Return how many GPUs this type has."""
        return int(facts(self.instance_type).get("gpus", 0))


def facts(instance_type: str) -> Mapping[str, Any]:
    """Return the row of one instance type, empty if the type is not in the table."""
    return _table().get(instance_type, {})


@cache
def _table() -> dict[str, dict[str, Any]]:
    path = Path(airflow_smd.__file__).parent / "domain" / "tables" / "instances.json"
    return {row["type"]: row for row in json.loads(path.read_text())}


def training_machines(resources: Mapping[str, Any]) -> tuple[Machine, ...]:
    """Return the hosts that a ResourceConfig asks for, numbered through its groups in their order."""
    groups = resources.get("InstanceGroups") or [
        {
            "InstanceGroupName": SOLE_GROUP,
            "InstanceType": resources["InstanceType"],
            "InstanceCount": resources.get("InstanceCount", 1),
        }
    ]
    wanted = [(group["InstanceGroupName"], group["InstanceType"], group["InstanceCount"]) for group in groups]
    return _numbered(wanted)


def processing_machines(cluster: Mapping[str, Any]) -> tuple[Machine, ...]:
    """Return the hosts that a ClusterConfig asks for; of several preferred types, the first."""
    chosen = {**cluster, **(cluster.get("InstancePreferences") or [{}])[0]}
    return _numbered([(SOLE_GROUP, chosen["InstanceType"], chosen.get("InstanceCount", 1))])


def _numbered(wanted: list[tuple[str, str, int]]) -> tuple[Machine, ...]:
    members = [(group, kind) for group, kind, count in wanted for _ in range(count)]
    return tuple(
        Machine(name=f"algo-{number + 1}", number=number, group=group, instance_type=kind)
        for number, (group, kind) in enumerate(members)
    )
