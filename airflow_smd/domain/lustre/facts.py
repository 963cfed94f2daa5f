"""The tables about FSx for Lustre: what it accepts, how fast it is and where it exists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from airflow_smd.domain.units import TIB

GIB_PER_TIB = TIB // 2**30
"""AWS also counts 1000 GiB as one TiB; that promises 2.4 % more than was bought, so we never plan with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """What one TiB of storage brings, in MB/s and GiB; baseline, so it holds for hours."""

    tier: int | None
    network_mbps: float
    network_burst_mbps: float
    ram_gib: float
    read_mbps: float
    write_mbps: float
    server_gib: int
    """Storage behind one file server; one client reads from one server at no more than 625 MB/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One deployment type on one kind of storage: the sizes FSx accepts and what goes with it."""

    name: str
    deployment_type: str
    storage_type: str
    sizes: Mapping[str, Any] | None
    """None: grows by itself."""
    update_step_gib: int | None
    tiers: tuple[int, ...]
    tier_can_change: bool
    associations: bool
    import_path: bool
    metadata: bool
    efa_step_gib: Mapping[str, int]
    kms_key: bool
    backups: bool
    oldest_version: str
    plan: bool
    """We propose it ourselves."""
    performance: tuple[Performance, ...]
    source: str
    date: str
    largest_gib: int | None = None

    def speed(self, tier: int | None) -> Performance | None:
        """Return what one TiB of this tier brings, or None for a tier that is newer than the table."""
        return next((row for row in self.performance if row.tier == tier), None)

    def step_gib(self, tier: int | None, *, efa: bool) -> int | None:
        """Return the step of its sizes, or None for a tier that we do not know."""
        if efa:
            return self.efa_step_gib.get(str(tier))
        steps: Mapping[str, int] = (self.sizes or {}).get("by_tier_gib", {})
        return steps.get(str(tier)) if steps else (self.sizes or {}).get("step_gib")

    def accepts(self, gib: int, tier: int | None, *, efa: bool) -> bool:
        """Return whether FSx creates a file system of this size."""
        if not efa and gib in (self.sizes or {}).get("first_gib", ()):
            return True
        step = self.step_gib(tier, efa=efa)
        return bool(step) and gib > 0 and gib % (step or 1) == 0

    def sizes_in_words(self, tier: int | None, *, efa: bool) -> str:
        """Return the accepted sizes for a person."""
        step = self.step_gib(tier, efa=efa)
        first = [] if efa else (self.sizes or {}).get("first_gib", [])
        return " or ".join([*(str(size) for size in first), f"a multiple of {step}"]) + " GiB"

    def nearest(self, gib: float, tier: int | None, *, efa: bool) -> int | None:
        """Return the smallest accepted size of at least `gib`."""
        first = [] if efa else [size for size in (self.sizes or {}).get("first_gib", []) if size >= gib]
        step = self.step_gib(tier, efa=efa)
        return min(first) if first else (max(1, -int(-gib // step)) * step if step else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFacts:
    """What of FSx for Lustre a Region has."""

    families: frozenset[str]
    tiers: frozenset[int]
    """Tiers of PERSISTENT_2."""
    efa: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The tables, read-only; `load` merges the user's corrections into them."""

    families: Mapping[tuple[str, str], Family]
    regions: Mapping[str, RegionFacts]
    rest: Mapping[str, Any]
    """The other tables of lustre.json by name, each with its source and date."""
    regions_date: str
    slow_burst: Mapping[str, Any]


def load(overrides: Mapping[str, Any] | None = None) -> Facts:
    """Return the tables with `overrides` merged in.

    Args:
        overrides: `{"lustre": {...}, "regions": {...}}`, shaped like tables/lustre.json and
            tables/lustre_regions.json. A dictionary merges key by key, families merge by name, and anything
            else replaces what we ship, so that a newer AWS needs no newer release.
    """
    overrides = overrides or {}
    return _read(json.dumps(overrides.get("lustre", {})), json.dumps(overrides.get("regions", {})))


@cache
def _read(lustre_overrides: str, region_overrides: str) -> Facts:
    tables = files("airflow_smd.domain") / "tables"
    lustre = merge(json.loads((tables / "lustre.json").read_text("utf-8")), json.loads(lustre_overrides))
    regions = merge(
        json.loads((tables / "lustre_regions.json").read_text("utf-8")), json.loads(region_overrides)
    )
    families = [_family(row) for row in lustre.pop("families")]
    return Facts(
        families=MappingProxyType({(row.deployment_type, row.storage_type): row for row in families}),
        regions=MappingProxyType(
            {
                region: RegionFacts(
                    families=frozenset(group["families"]),
                    tiers=frozenset(group["tiers"]),
                    efa=group["efa"],
                )
                for group in regions["groups"].values()
                for region in group["regions"]
            }
        ),
        rest=MappingProxyType(lustre),
        regions_date=regions["date"],
        slow_burst=MappingProxyType(regions["slow_burst"]),
    )


def _family(row: Mapping[str, Any]) -> Family:
    return Family(
        **{
            **row,
            "tiers": tuple(row["tiers"]),
            "performance": tuple(Performance(**speed) for speed in row["performance"]),
        }
    )


def merge(base: Any, over: Any) -> Any:
    """Return `base` with `over` put on top: dictionaries by key, lists of named rows by name."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {
            key: merge(base.get(key), over[key]) if key in over else base[key] for key in {**base, **over}
        }
    if isinstance(base, list) and isinstance(over, list) and over and all(_named(row) for row in base + over):
        rows = merge({row["name"]: row for row in base}, {row["name"]: row for row in over})
        return list(rows.values())
    return over


def _named(row: Any) -> bool:
    return isinstance(row, dict) and "name" in row
