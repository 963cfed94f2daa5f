"""What UpdateFileSystem refuses: growing, changing the tier, adding metadata IOPS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from airflow_smd.domain.lustre.facts import Facts, Family, load
from airflow_smd.domain.lustre.rule import Rule
from airflow_smd.domain.lustre.validity import problems
from airflow_smd.domain.lustre.values import LustreConfig, MetadataMode
from airflow_smd.errors import Problem

COOL_DOWN_SECONDS = 6 * 3600
"""After an update FSx takes the next one this much later, or once it has optimised, whichever is later."""
CHANGEABLE = frozenset(
    {
        "storage_capacity_gib",
        "per_unit_storage_throughput",
        "throughput_capacity_mbps",
        "metadata_iops",
        "metadata_mode",
        "read_cache_mode",
        "read_cache_gib",
        "type_version",
        "auto_import_policy",
        "backup_retention_days",
        "compression",
        "associations",
    }
)
"""What UpdateFileSystem takes (botocore 1.44.8), and associations, which have calls of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file system as it is, as it shall be, and what happened to it last."""

    current: LustreConfig
    config: LustreConfig
    family: Family
    facts: Facts
    seconds_since_update: float | None
    optimizing: bool

    def changes(self, *names: str) -> bool:
        """Return whether any of these fields would change."""
        return any(getattr(self.current, name) != getattr(self.config, name) for name in names)

    @property
    def growth_step_gib(self) -> int | None:
        """Return the step of sizes that a growing file system takes; None where it cannot grow."""
        if self.family.storage_type == "HDD" or self.config.efa:
            return self.family.step_gib(self.current.per_unit_storage_throughput, efa=self.config.efa)
        return self.family.update_step_gib

    @property
    def next_size_gib(self) -> int:
        """Return the smallest size to grow to that holds what was asked for."""
        step = self.growth_step_gib or 1
        return -(-(self.config.storage_capacity_gib or 0) // step) * step

    @property
    def fixed(self) -> list[str]:
        """Return the fields that would change and never can."""
        names = [field.name for field in fields(LustreConfig) if field.name not in CHANGEABLE]
        return [name for name in names if self.changes(name)]


def _shrinks(name: str) -> Callable[[Change], bool]:
    def check(change: Change) -> bool:
        before, after = getattr(change.current, name), getattr(change.config, name)
        return before is not None and after is not None and after < before

    return check


def _bad_growth(change: Change) -> bool:
    gib, step = change.config.storage_capacity_gib, change.growth_step_gib
    return change.changes("storage_capacity_gib") and bool(gib and step) and (gib or 0) % (step or 1) != 0


def _older(change: Change) -> bool:
    known = change.facts.rest["versions"]["values"]
    before, after = change.current.type_version, change.config.type_version
    return before in known and after in known and known.index(after) < known.index(before)


RULES: tuple[Rule[Change], ...] = (
    Rule(
        "update-grow-forbidden", "storage_capacity_gib",
        lambda c: c.changes("storage_capacity_gib") and not c.growth_step_gib,
        "{family} cannot grow.", "Create another file system.",
    ),
    Rule(
        "update-shrink", "storage_capacity_gib", _shrinks("storage_capacity_gib"),
        "A file system never shrinks.", "Create a smaller one.",
    ),
    Rule(
        "update-step", "storage_capacity_gib", _bad_growth,
        "{family} grows to multiples of {step} GiB only, also where other sizes can be created.",
        "Use {nearest}.", lambda c: {"step": c.growth_step_gib, "nearest": c.next_size_gib},
    ),
    Rule(
        "update-tier-forbidden", "per_unit_storage_throughput",
        lambda c: c.changes("per_unit_storage_throughput") and not c.family.tier_can_change,
        "{family} keeps its throughput per TiB.", "Create another file system.",
    ),
    Rule(
        "update-tier-efa", "per_unit_storage_throughput",
        lambda c: c.changes("per_unit_storage_throughput") and c.family.tier_can_change and c.current.efa,
        "A file system with EFA keeps its throughput per TiB.", "Create another file system.",
    ),
    Rule(
        "update-throughput-down", "throughput_capacity_mbps", _shrinks("throughput_capacity_mbps"),
        "The throughput of {family} only grows.", "Create another file system.",
    ),
    Rule(
        "update-metadata-added", "metadata_mode",
        lambda c: not c.current.metadata_mode and bool(c.config.metadata_mode),
        "A metadata configuration cannot be added later.", "Create another file system with it.",
    ),
    Rule(
        "update-metadata-down", "metadata_iops", _shrinks("metadata_iops"),
        "Metadata IOPS only grow.", "Keep {before} or more.", lambda c: {"before": c.current.metadata_iops},
    ),
    Rule(
        "update-metadata-automatic", "metadata_mode",
        lambda c: c.current.metadata_mode == MetadataMode.USER_PROVISIONED != c.config.metadata_mode
        and c.config.metadata_mode is not None,
        "Provisioned metadata IOPS do not go back to AUTOMATIC, which may be fewer.",
        "Keep USER_PROVISIONED.",
    ),
    Rule(
        "update-metadata-with-size", "metadata_iops",
        lambda c: c.changes("metadata_iops") and c.changes("storage_capacity_gib"),
        "Storage and metadata IOPS do not change at the same time.",
        "Change one, wait, then change the other.",
    ),
    Rule(
        "update-version-down", "type_version", _older,
        "The Lustre version only goes up.", "Keep {before}.", lambda c: {"before": c.current.type_version},
    ),
    Rule(
        "update-fixed", "deployment_type", lambda c: bool(c.fixed),
        "{fixed} of a file system cannot change.", "Create another file system.",
        lambda c: {"fixed": ", ".join(c.fixed)},
    ),
    Rule(
        "update-cool-down", "storage_capacity_gib",
        lambda c: c.changes("storage_capacity_gib", "per_unit_storage_throughput", "metadata_iops")
        and c.seconds_since_update is not None and c.seconds_since_update < COOL_DOWN_SECONDS,
        "FSx takes the next change 6 hours after the last, {left:.0f} minutes from now.",
        "Wait, or create a file system of the right size: it takes minutes.",
        lambda c: {"left": (COOL_DOWN_SECONDS - (c.seconds_since_update or 0)) / 60},
    ),
    Rule(
        "update-optimizing", "storage_capacity_gib",
        lambda c: c.optimizing and c.changes("storage_capacity_gib", "per_unit_storage_throughput"),
        "FSx still optimises the last change, which takes hours to days.",
        "Wait, or create a file system of the right size: it takes minutes.",
    ),
)  # fmt: skip


def update_problems(
    current: LustreConfig,
    target: LustreConfig,
    region: str | None,
    *,
    seconds_since_update: float | None = None,
    optimizing: bool = False,
    facts: Facts | None = None,
) -> tuple[Problem, ...]:
    """Return everything FSx would refuse about changing `current` into `target`.

    Args:
        current: the file system as it is.
        target: as it shall be.
        region: AWS Region.
        seconds_since_update: time since the last update was asked for; None if there was none.
        optimizing: an administrative action is still UPDATED_OPTIMIZING.
        facts: default: our tables.
    """
    facts = facts or load()
    family = facts.families.get((current.deployment_type, current.storage_type))
    found = problems(target, region, facts)
    if family is None:
        return found
    change = Change(
        current=current,
        config=target,
        family=family,
        facts=facts,
        seconds_since_update=seconds_since_update,
        optimizing=optimizing,
    )
    return (*(problem for rule in RULES if (problem := rule.judge(change))), *found)


def update_request(current: LustreConfig, target: LustreConfig, *, file_system_id: str) -> dict[str, Any]:
    """Return the UpdateFileSystem request that turns `current` into `target`, without a request token."""

    def changed(name: str) -> Any:
        after = getattr(target, name)
        return after if after != getattr(current, name) else None

    metadata = {"Iops": changed("metadata_iops"), "Mode": changed("metadata_mode")}
    cache = {"SizingMode": changed("read_cache_mode"), "SizeGiB": changed("read_cache_gib")}
    lustre = {
        "PerUnitStorageThroughput": changed("per_unit_storage_throughput"),
        "ThroughputCapacity": changed("throughput_capacity_mbps"),
        "MetadataConfiguration": _given(metadata) or None,
        "DataReadCacheConfiguration": _given(cache) or None,
        "AutoImportPolicy": changed("auto_import_policy"),
        "AutomaticBackupRetentionDays": changed("backup_retention_days"),
        "DataCompressionType": changed("compression"),
    }
    return _given(
        {
            "FileSystemId": file_system_id,
            "StorageCapacity": changed("storage_capacity_gib"),
            "FileSystemTypeVersion": changed("type_version"),
            "LustreConfiguration": _given(lustre) or None,
        }
    )


def _given(fields_: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields_.items() if value is not None}
