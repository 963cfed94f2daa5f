"""What FSx refuses about size and throughput, at creation."""

from __future__ import annotations

from typing import Any

from airflow_smd.domain.lustre.rule import Case, Rule
from airflow_smd.domain.lustre.values import StorageType
from airflow_smd.errors import Severity

READ_CACHE_MODES = ("NO_CACHE", "USER_PROVISIONED", "PROPORTIONAL_TO_THROUGHPUT_CAPACITY")
"""botocore: LustreReadCacheSizingMode."""


def _bad_size(case: Case) -> bool:
    gib, tier = case.config.storage_capacity_gib, case.config.per_unit_storage_throughput
    if gib is None or case.tiering or not case.known_tier:
        return False
    return not case.family.accepts(gib, tier, efa=case.efa)


def _nearest(case: Case) -> dict[str, Any]:
    gib, tier = case.config.storage_capacity_gib or 0, case.config.per_unit_storage_throughput
    return {"sizes": case.sizes, "nearest": case.family.nearest(gib, tier, efa=case.efa)}


def _tiers(case: Case) -> dict[str, Any]:
    return {"tiers": ", ".join(map(str, case.family.tiers))}


def _newer_tier(case: Case) -> bool:
    tier = case.config.per_unit_storage_throughput
    known = {tier for family in case.facts.families.values() for tier in family.tiers}
    return (
        tier is not None and bool(case.family.tiers) and tier not in known and tier > max(case.family.tiers)
    )


def _bad_tiering_throughput(case: Case) -> bool:
    mbps, table = case.config.throughput_capacity_mbps, case.facts.rest["tiering"]
    return case.tiering and (
        not mbps or mbps % table["step_mbps"] != 0 or not 0 < mbps <= table["largest_mbps"]
    )


def _bad_cache_size(case: Case) -> bool:
    config = case.config
    if config.read_cache_mode != "USER_PROVISIONED":
        return config.read_cache_gib is not None
    low, high = case.facts.rest["tiering"]["cache_gib_per_1000_mbps"]
    thousands = (config.throughput_capacity_mbps or 0) / 1000
    return config.read_cache_gib is None or not low * thousands <= config.read_cache_gib <= high * thousands


def _refused_tier(case: Case) -> bool:
    tier = case.config.per_unit_storage_throughput
    return tier is not None and not case.known_tier and not _newer_tier(case)


SIZE_RULES: tuple[Rule[Case], ...] = (
    # Size, facts: creation and update.
    Rule(
        "capacity-missing", "storage_capacity_gib",
        lambda c: not c.tiering and c.config.storage_capacity_gib is None,
        "{family} needs a size.", "Give {sizes}.", lambda c: {"sizes": c.sizes},
    ),
    Rule(
        "capacity-refused", "storage_capacity_gib", _bad_size,
        "{family} takes {sizes}.", "Use {nearest}.", _nearest,
    ),
    Rule(
        "capacity-too-large", "storage_capacity_gib",
        lambda c: 0 < (c.family.largest_gib or 0) < (c.config.storage_capacity_gib or 0),
        "{family} ends at {largest} GiB.", "Use SSD, or two file systems.",
        lambda c: {"largest": c.family.largest_gib},
    ),
    Rule(
        "capacity-over-quota", "storage_capacity_gib",
        lambda c: not c.family.largest_gib
        and (c.config.storage_capacity_gib or 0) > c.facts.rest["account"]["total_gib"],
        "A new account may have {total} GiB of one type in a Region.",
        "Ask Service Quotas for more before the run.",
        lambda c: {"total": c.facts.rest["account"]["total_gib"]},
        Severity.WARNING,
    ),
    Rule(
        "capacity-elastic", "storage_capacity_gib",
        lambda c: c.tiering and c.config.storage_capacity_gib is not None,
        "{family} grows by itself and takes no size.", "Leave it out.",
    ),
    # Throughput per unit of storage.
    Rule(
        "tier-missing", "per_unit_storage_throughput",
        lambda c: bool(c.family.tiers) and c.config.per_unit_storage_throughput is None,
        "{family} needs a throughput per TiB: {tiers} MB/s.", "Choose one of them.", _tiers,
    ),
    Rule(
        "tier-forbidden", "per_unit_storage_throughput",
        lambda c: not c.family.tiers and c.config.per_unit_storage_throughput is not None,
        "{family} has a fixed throughput and takes no such value.", "Leave it out.",
    ),
    Rule(
        "tier-refused", "per_unit_storage_throughput",
        _refused_tier,
        "{family} takes {tiers} MB/s per TiB.", "Choose one of them.", _tiers,
    ),
    Rule(
        "tier-unknown", "per_unit_storage_throughput", _newer_tier,
        "{family} had {tiers} MB/s per TiB on {date}; this one is newer than our table, or wrong.",
        "If AWS has it now, add it to the table `lustre` to have it planned.",
        lambda c: {**_tiers(c), "date": c.family.date}, Severity.WARNING,
    ),
    # What only HDD has.
    Rule(
        "drive-cache-missing", "drive_cache",
        lambda c: c.family.storage_type == StorageType.HDD and c.config.drive_cache not in ("NONE", "READ"),
        "HDD needs a drive cache: NONE, or READ for an SSD cache of a fifth of the size.",
        "Choose READ for training.",
    ),
    Rule(
        "drive-cache-forbidden", "drive_cache",
        lambda c: c.family.storage_type != StorageType.HDD and c.config.drive_cache is not None,
        "Only HDD has a drive cache.", "Leave it out.",
    ),
    # What only Intelligent-Tiering has.
    Rule(
        "tiering-throughput", "throughput_capacity_mbps", _bad_tiering_throughput,
        "{family} needs a throughput: a multiple of {step} MB/s up to {largest}.", "Use {step}.",
        lambda c: {name: c.facts.rest["tiering"][f"{name}_mbps"] for name in ("step", "largest")},
    ),
    Rule(
        "tiering-throughput-forbidden", "throughput_capacity_mbps",
        lambda c: not c.tiering and c.config.throughput_capacity_mbps is not None,
        "{family} takes its throughput from its size.", "Leave it out.",
    ),
    Rule(
        "read-cache-missing", "read_cache_mode",
        lambda c: c.tiering and c.config.read_cache_mode not in READ_CACHE_MODES,
        "{family} needs {modes}.", "Use PROPORTIONAL_TO_THROUGHPUT_CAPACITY.",
        lambda _: {"modes": " or ".join(READ_CACHE_MODES)},
    ),
    Rule(
        "read-cache-forbidden", "read_cache_mode",
        lambda c: not c.tiering and c.config.read_cache_mode is not None,
        "Only INTELLIGENT_TIERING has a read cache.", "Leave it out.",
    ),
    Rule(
        "read-cache-size", "read_cache_gib", _bad_cache_size,
        "A read cache has a size with USER_PROVISIONED only: {low} to {high} GiB for each 1000 MB/s.",
        "Leave it out, or give a size in that range.",
        lambda c: dict(zip(("low", "high"), c.facts.rest["tiering"]["cache_gib_per_1000_mbps"], strict=True)),
    ),
)  # fmt: skip
