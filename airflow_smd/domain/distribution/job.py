"""A training job as its author wrote it: an estimator, a bare dictionary or a raw request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from airflow_smd.domain.instances import Instance, find
from airflow_smd.errors import Problem

ESTIMATORS = ("PyTorch", "TensorFlow", "HuggingFace", "Estimator")


class Form(StrEnum):
    """How the input was written, so that a problem names the field as its author spells it."""

    ESTIMATOR = "estimator"
    DISTRIBUTION = "distribution"
    REQUEST = "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Hosts of one type: an instance group, or the whole of a homogeneous cluster."""

    name: str
    instance_type: str
    hosts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the job has to get done; every number is optional and 0 means unknown."""

    dataset_gb: float = 0.0
    epoch_seconds: float = 0.0
    epochs: float = 0.0
    file_system_mbps: float = 0.0
    execution_timeout_seconds: float = 0.0
    """Airflow's own limit of the task."""
    batch_per_gpu: int = 0
    global_batch: int = 0

    @property
    def needed_seconds(self) -> float:
        """Return the training time that the user expects, or 0."""
        return self.epochs * self.epoch_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job; only well-typed settings are in it, the others are in `problems`."""

    form: Form
    estimator: str
    region: str
    arguments: Mapping[str, Any]
    """Keywords of the SDK v2 estimators, old names renamed."""
    inputs: Any = None
    request: Mapping[str, Any] = field(default_factory=dict)
    """The raw CreateTrainingJob request, where that is what was given."""
    workload: Workload = field(default_factory=Workload)
    problems: tuple[Problem, ...] = ()

    @classmethod
    def parse(cls, mapping: Mapping[str, Any]) -> Job:
        """Read an estimator's inputs, a `distribution` dictionary or a CreateTrainingJob request.

        Whatever is malformed is in `problems`; nothing is raised and no key is dropped without one.
        """
        from airflow_smd.domain.distribution.parsing import parse

        return parse(mapping)

    def but(self, **arguments: Any) -> Job:
        """Return the same job with some arguments replaced, as for a fallback instance type."""
        return replace(self, arguments={**self.arguments, **arguments})

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, or `default` where it is missing or None."""
        value = self.arguments.get(name)
        return default if value is None else value

    @property
    def distribution(self) -> Mapping[str, Any]:
        """Return the SDK's dictionary, well-typed, empty if there is none."""
        found: Mapping[str, Any] = self.get("distribution", {})
        return found

    def section(self, name: str) -> Mapping[str, Any] | None:
        """Return the settings of one strategy: a key of `distribution` or of its `smdistributed`."""
        inner = self.distribution.get("smdistributed")
        if name in ("dataparallel", "modelparallel"):
            found = inner.get(name) if isinstance(inner, Mapping) else None
        else:
            found = self.distribution.get(name)
        return found if isinstance(found, Mapping) else None

    def enabled(self, name: str) -> bool:
        """Return whether a strategy is switched on, as the container reads the switch."""
        return bool((self.section(name) or {}).get("enabled", False))

    @property
    def on(self) -> tuple[str, ...]:
        """Return every strategy that is switched on."""
        names = (
            "mpi",
            "torch_distributed",
            "dataparallel",
            "modelparallel",
            "pytorchddp",
            "pytorchxla",
            "parameter_server",
            "multi_worker_mirrored_strategy",
        )
        return tuple(name for name in names if self.enabled(name))

    @property
    def torchrun(self) -> bool:
        """Return whether torchrun starts the script."""
        return self.enabled("torch_distributed")

    @property
    def smddp(self) -> bool:
        """Return whether SMDDP is on, under its own name or as the PyTorch class's `pytorchddp`."""
        return self.enabled("dataparallel") or (self.estimator == "PyTorch" and self.enabled("pytorchddp"))

    @property
    def smp1(self) -> bool:
        """Return whether SMP v1 is on: `modelparallel` without torchrun."""
        return self.enabled("modelparallel") and not self.torchrun

    @property
    def smp2(self) -> bool:
        """Return whether SMP v2 is on: `modelparallel` with torchrun."""
        return self.enabled("modelparallel") and self.torchrun

    @property
    def smp_parameters(self) -> Mapping[str, Any]:
        """Return the parameters of the model parallelism library, empty if none or not a mapping."""
        found = (self.section("modelparallel") or {}).get("parameters")
        return found if isinstance(found, Mapping) else {}

    @property
    def framework(self) -> str:
        """Return pytorch, tensorflow, or an empty string where only the image knows."""
        match self.estimator:
            case "PyTorch":
                return "pytorch"
            case "TensorFlow":
                return "tensorflow"
            case "HuggingFace" if self.get("tensorflow_version"):
                return "tensorflow"
            case "HuggingFace":
                return "pytorch"
        return image_framework(self.image_uri)[0]

    @property
    def framework_version(self) -> str:
        """Return the version of PyTorch or TensorFlow, from the arguments or else the image's tag."""
        if self.estimator == "HuggingFace":
            given = self.get("tensorflow_version") or self.get("pytorch_version")
        else:
            given = self.get("framework_version")
        return str(given) if given else image_framework(self.image_uri)[1]

    @property
    def image_uri(self) -> str:
        """Return the image that the author chose, or an empty string."""
        return str(self.get("image_uri", ""))

    @property
    def groups(self) -> tuple[Group, ...]:
        """Return the hosts by type; empty where the author says nothing of them."""
        given = self.get("instance_groups")
        if given is not None:
            return tuple(
                Group(
                    name=group["instance_group_name"],
                    instance_type=group["instance_type"],
                    hosts=group["instance_count"],
                )
                for group in given
            )
        if self.get("instance_type"):
            return (
                Group(name="", instance_type=self.get("instance_type"), hosts=self.get("instance_count", 1)),
            )
        return ()

    @property
    def group_names(self) -> tuple[str, ...]:
        """Return the groups that `distribution` names."""
        return tuple(self.distribution.get("instance_groups", ()))

    @property
    def training_group(self) -> Group | None:
        """Return the hosts that the strategy runs on."""
        named = [group for group in self.groups if group.name in self.group_names]
        return next(iter(named or self.groups), None)

    @property
    def instance_type(self) -> str:
        """Return the type of the hosts that train, or an empty string."""
        return self.training_group.instance_type if self.training_group else ""

    @property
    def instance(self) -> Instance | None:
        """Return the facts of that type, None if unknown."""
        return find(self.instance_type)

    @property
    def hosts(self) -> int:
        """Return how many hosts train, 0 if unknown."""
        return self.training_group.hosts if self.training_group else 0

    @property
    def processes_per_host(self) -> int:
        """Return how many processes start on each host, 0 if unknown.

        One for each accelerator, or `mpi.processes_per_host`; one where no launcher starts more.
        """
        if not self.launched:
            return 1 if self.instance_type else 0
        asked = whole_number((self.section("mpi") or {}).get("processes_per_host"))
        if asked and not self.torchrun:
            return asked
        return self.instance.processes if self.instance else 0

    @property
    def world_size(self) -> int:
        """Return the number of processes of the strategy, 0 if unknown."""
        return self.hosts * self.processes_per_host

    @property
    def launched(self) -> bool:
        """Return whether a launcher starts more than one plain script on each host."""
        by_process = {"mpi", "torch_distributed", "dataparallel", "pytorchddp", "pytorchxla"}
        return self.estimator != "Estimator" and bool(by_process & set(self.on))


def whole_number(value: Any) -> int | None:
    """Return an int, or digits as an int, or None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 12:
        return int(value)
    return None


def image_framework(image_uri: str) -> tuple[str, str]:
    """Return the framework and version that an AWS image's URI tells, or empty strings."""
    match = re.search(r"/(?:huggingface-)?(pytorch|tensorflow)-[a-z0-9-]*:(\d[\d.]*)", image_uri)
    if match:
        return match[1], match[2]
    match = re.search(r"/smdistributed-modelparallel:(\d[\d.]*)", image_uri)
    return ("pytorch", match[1]) if match else ("", "")


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf of nested mappings and lists with its path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from walk(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for index, inner in enumerate(value):
            yield from walk(inner, f"{path}[{index}]")
    else:
        yield path, value
