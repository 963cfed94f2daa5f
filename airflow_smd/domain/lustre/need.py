"""What a training run needs of its storage."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from airflow_smd.domain.instances import find
from airflow_smd.domain.lustre.facts import Facts, Family
from airflow_smd.domain.lustre.validity import problems, region_problems
from airflow_smd.domain.lustre.values import Access, LustreConfig, MetadataMode, StorageType
from airflow_smd.domain.units import MB, TB
from airflow_smd.errors import Problem, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One training run as its storage sees it.

    How fast it reads is told in one of three ways: `epoch_seconds`, or `samples_per_second` with
    `bytes_per_sample`, or `mbps_per_gpu` with the GPUs of `instance_type` (or `gpus_per_node`).
    """

    dataset_bytes: int
    nodes: int
    epoch_seconds: float | None = None
    """Time of an epoch when the storage never lets a GPU wait."""
    samples_per_second: float | None = None
    """Of all nodes together."""
    bytes_per_sample: float | None = None
    mbps_per_gpu: float | None = None
    gpus_per_node: int | None = None
    epochs: int = 10
    region: str = "us-east-1"
    instance_type: str | None = None
    node_usd_per_hour: float | None = None
    """Your price; default: the table's for `instance_type`, None where the table has none."""
    memory_per_node_gib: float | None = None
    """Default: that of `instance_type`. Unknown memory caches nothing."""
    file_count: int | None = None
    checkpoint_bytes: int = 0
    """Written once an epoch, while the GPUs wait."""
    access: Access = Access.RESHUFFLED
    preload: bool = True
    """A job reads every file once before the training; otherwise the first epoch loads from S3."""
    deployment_type: str | None = None
    """Only this one; it also keeps the answer a file system where another input mode would do."""
    per_unit_storage_throughput: int | None = None
    """Only this tier."""
    efa: bool = False
    vpc: bool = True
    """False where the run may not use a VPC, so that no file system can be mounted."""
    insist: bool = False
    """Plan a file system even where another input mode would do."""

    @property
    def compute_seconds(self) -> float:
        """Return the time of an epoch when the storage never lets a GPU wait."""
        return self.epoch_seconds or self.dataset_bytes / MB / self.required_mbps

    @property
    def required_mbps(self) -> float:
        """Return the plain rule: all bytes in one epoch's time, no cache, in MB/s."""
        if self.epoch_seconds:
            return self.dataset_bytes / MB / self.epoch_seconds
        if self.samples_per_second and self.bytes_per_sample:
            return self.samples_per_second * self.bytes_per_sample / MB
        return (self.mbps_per_gpu or 0) * self.gpus * self.nodes

    @property
    def gpus(self) -> int:
        """Return the GPUs of one node."""
        instance = find(self.instance_type) if self.instance_type else None
        return self.gpus_per_node or (instance.gpus if instance else 0)

    @property
    def memory_gib(self) -> float:
        """Return the memory of one node, 0 if unknown."""
        instance = find(self.instance_type) if self.instance_type else None
        return self.memory_per_node_gib or (instance.memory_gib if instance else 0)


@dataclass(frozen=True, slots=True)
class _Bound:
    """The values of a number that make sense; what lies outside is a slip of the pen."""

    field: str
    low: float
    high: float
    remedy: str

    @property
    def optional(self) -> bool:
        """Return whether it may be left out."""
        return self.field not in ("dataset_bytes", "nodes", "epochs", "checkpoint_bytes")

    @property
    def whole(self) -> bool:
        """Return whether halves make no sense."""
        return self.field in ("nodes", "epochs", "gpus_per_node", "file_count")


_BOUNDS = (
    _Bound("dataset_bytes", 1, 100_000 * TB, "Give the size of the data set, as in 100GB."),
    _Bound("nodes", 1, 10_000, "Give the number of training instances."),
    _Bound("epoch_seconds", 1e-3, 30 * 86400, "Give the seconds of one epoch of pure compute."),
    _Bound("samples_per_second", 1e-6, 1e12, "Give the samples of all nodes together."),
    _Bound("bytes_per_sample", 1, 1e12, "Give the mean size of a sample as it is stored."),
    _Bound(
        "mbps_per_gpu", 1e-6, 100_000, "Give the MB/s that one GPU consumes, as in 105 for ResNet-50 on A100."
    ),
    _Bound("gpus_per_node", 1, 64, "Give the GPUs of one instance."),
    _Bound("epochs", 1, 1_000_000, "Give the number of epochs of the run."),
    _Bound("node_usd_per_hour", 0, 10_000, "Give the price of one instance for an hour."),
    _Bound("memory_per_node_gib", 0.25, 65_536, "Give the memory of one instance."),
    _Bound("file_count", 1, 1e12, "Give the number of files of the data set."),
    _Bound("checkpoint_bytes", 0, 1_000 * TB, "Give the size of one checkpoint."),
)


def need_problems(need: Need, facts: Facts) -> tuple[Problem, ...]:
    """Return everything that is wrong with `need`, before anything is planned."""
    found = [problem for bound in _BOUNDS if (problem := _outside(need, bound))]
    if not any(problem.rule.endswith("-number") for problem in found):
        found += [
            Problem(rule=rule, field=field, value=getattr(need, field), message=message, remedy=remedy)
            for rule, field, broken, message, remedy in _RULES
            if broken(need)
        ]
    return (*found, *region_problems(need.region, facts), *_pin_problems(need, facts))


def _pin_problems(need: Need, facts: Facts) -> tuple[Problem, ...]:
    """Return why nothing can be made of the type, tier and EFA that the user insists on."""
    if (need.deployment_type, need.per_unit_storage_throughput, need.efa) == (None, None, False):
        return ()
    best: tuple[Problem, ...] | None = None
    for family in facts.families.values():
        if family.storage_type == StorageType.SSD and _meant(need, family):
            found = _pinned(need, family, facts)
            if best is None or len(found) < len(best):
                best = found
    if best is None:
        best = problems(LustreConfig(deployment_type=need.deployment_type or ""), None, facts)
    return best


def _meant(need: Need, family: Family) -> bool:
    if need.deployment_type is not None:
        return family.deployment_type == need.deployment_type
    tiered = bool(family.tiers) or need.per_unit_storage_throughput is None
    return family.plan and tiered and (bool(family.efa_step_gib) or not need.efa)


def _pinned(need: Need, family: Family, facts: Facts) -> tuple[Problem, ...]:
    region = facts.regions.get(need.region)
    tiers = [tier for tier in family.tiers if region is None or not family.metadata or tier in region.tiers]
    tier = need.per_unit_storage_throughput or next(iter(tiers or family.tiers), None)
    config = LustreConfig(
        deployment_type=family.deployment_type,
        storage_capacity_gib=family.nearest(1, tier, efa=need.efa and bool(family.efa_step_gib)),
        per_unit_storage_throughput=tier,
        efa=need.efa,
        metadata_mode=MetadataMode.AUTOMATIC if family.metadata else None,
    )
    return tuple(
        problem
        for problem in problems(config, need.region if region else None, facts)
        if problem.severity is Severity.ERROR and problem.field != "storage_capacity_gib"
    )


def _outside(need: Need, bound: _Bound) -> Problem | None:
    value = getattr(need, bound.field)
    name = bound.field.replace("_", "-")
    if value is None and bound.optional:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        rule, message = f"{name}-number", "must be a number."
    elif bound.whole and math.isfinite(value) and value != int(value):
        rule, message = f"{name}-whole", "must be a whole number."
    elif math.isfinite(value) and bound.low <= value <= bound.high:
        return None
    else:
        rule, message = f"{name}-range", f"must lie between {bound.low:g} and {bound.high:g}."
    return Problem(rule=rule, field=bound.field, value=value, message=message, remedy=bound.remedy)


def _rates(need: Need) -> int:
    by_samples = need.samples_per_second is not None or need.bytes_per_sample is not None
    return sum((need.epoch_seconds is not None, by_samples, need.mbps_per_gpu is not None))


_RULES: tuple[tuple[str, str, Callable[[Need], bool], str, str], ...] = (
    (
        "rate-missing",
        "epoch_seconds",
        lambda need: _rates(need) == 0,
        "is missing, and nothing else says how fast the run reads.",
        "Give epoch_seconds, or samples_per_second and bytes_per_sample, or mbps_per_gpu.",
    ),
    (
        "rate-twice",
        "epoch_seconds",
        lambda need: _rates(need) > 1,
        "is one of three ways to say how fast the run reads, and more than one is given.",
        "Keep one of epoch_seconds, samples_per_second with bytes_per_sample, and mbps_per_gpu.",
    ),
    (
        "samples-half",
        "samples_per_second",
        lambda need: (need.samples_per_second is None) != (need.bytes_per_sample is None),
        "goes with bytes_per_sample.",
        "Give both.",
    ),
    (
        "gpus-unknown",
        "mbps_per_gpu",
        lambda need: need.mbps_per_gpu is not None and need.gpus == 0,
        "needs to know the GPUs of a node.",
        "Give instance_type or gpus_per_node.",
    ),
    (
        "instance-type-unknown",
        "instance_type",
        lambda need: (
            need.instance_type is not None
            and find(need.instance_type) is None
            and need.memory_per_node_gib is None
        ),
        "is no training instance type that we know.",
        "Check its name, as in ml.p4d.24xlarge; of a newer type give memory_per_node_gib as well.",
    ),
    (
        "access-unknown",
        "access",
        lambda need: need.access not in tuple(Access),
        f"must be one of {', '.join(Access)}.",
        "Use reshuffled for a DistributedSampler, which is the default.",
    ),
    (
        "files-larger",
        "file_count",
        lambda need: bool(need.file_count) and need.file_count > need.dataset_bytes > 0,  # type: ignore[operator]
        "has more files than the data set has bytes.",
        "Check both numbers.",
    ),
)
