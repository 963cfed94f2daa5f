"""What each training instance type is: GPUs, Neuron cores, memory, EFA and local disks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from airflow_smd.errors import InvalidInput, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One row of `tables/instances.json`; sizes are per instance unless the name says otherwise."""

    type: str
    gpus: int
    gpu: str
    """The GPU's model, empty where there is none."""
    gpu_memory_gib: float
    """Memory of one GPU."""
    vcpus: int
    memory_gib: float
    efa: bool
    """Has an Elastic Fabric Adapter, so NCCL needs `FI_PROVIDER=efa` to use it."""
    rdma: bool
    """EFA reads and writes device memory directly (`FI_EFA_USE_DEVICE_RDMA=1`)."""
    nvme: bool
    """Has local disks, so VolumeSizeInGB is not what limits it."""
    nvme_gb: int
    network_gbps: float
    neuron_cores: int
    """Logical Neuron cores, as torchrun starts one process on each."""
    source: str
    date: str

    @property
    def processes(self) -> int:
        """Return how many processes fill one host: one per GPU or Neuron core, else one."""
        return self.gpus or self.neuron_cores or 1

    @property
    def family(self) -> str:
        """Return `p4d` of `ml.p4d.24xlarge`."""
        return self.type.removeprefix("ml.").partition(".")[0]


@cache
def instances() -> Mapping[str, Instance]:
    """Return every known training instance type by name, as `ml.p4d.24xlarge`."""
    rows = json.loads((files("airflow_smd.domain") / "tables" / "instances.json").read_text("utf-8"))
    names = {field.name for field in fields(Instance)}
    return MappingProxyType({row["type"]: Instance(**{key: row[key] for key in names}) for row in rows})


def find(instance_type: str) -> Instance | None:
    """Return the facts of a type, or None for one that is newer than the table."""
    return instances().get(instance_type)


def processes_per_host(instance_type: str) -> int:
    """Return how many ranks one instance of this type runs: one per GPU or Neuron core, else one.

    Raises:
        InvalidInput: the type is not in our table, so nobody can tell.
    """
    if instance := find(instance_type):
        return instance.processes
    near = get_close_matches(instance_type, instances(), n=1)
    raise InvalidInput(
        [
            Problem(
                rule="instance-type-unknown",
                field="instance_type",
                value=instance_type,
                message="This type is not in our table of training instances.",
                remedy=f"Did you mean {near[0]}?" if near else "Write it as ml.p4d.24xlarge.",
            )
        ]
    )
