"""The file systems to choose from, and the cheapest that reads fast enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from airflow_smd.domain.cost import Prices
from airflow_smd.domain.lustre.facts import GIB_PER_TIB, Facts, Family
from airflow_smd.domain.lustre.need import Need
from airflow_smd.domain.lustre.values import LustreConfig, MetadataMode
from airflow_smd.domain.units import GIB

_STEPS, _GROWTH, _LARGEST_GIB = 100, 1.05, 200_000_000
"""Sizes are tried one by one up to 100 steps, then 5 % apart, so that petabytes plan in a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One file system that FSx would create."""

    config: LustreConfig
    gib: int
    disk_mbps: float
    """Read with nothing cached, for hours: the slower of disk and network."""
    node_mbps: float
    """One node takes no more from its servers."""
    usd_per_hour: float | None
    order: tuple[float, ...]
    """Cheapest first; those without a price last, the simplest family first."""

    def read_mbps(self, nodes: int) -> float:
        """Return what `nodes` nodes read together with nothing cached, their own network aside."""
        return min(self.disk_mbps, nodes * self.node_mbps)

    @property
    def kind(self) -> tuple[str, int | None]:
        """Return the family and tier, within which only the size differs."""
        return self.config.deployment_type, self.config.per_unit_storage_throughput


def rungs(need: Need, facts: Facts, prices: Prices) -> list[Rung]:
    """Return every file system that could serve `need` in its Region, cheapest first."""
    region = facts.regions[need.region]
    found: list[Rung] = []
    for rank, family in enumerate(facts.families.values()):
        wanted = (
            family.plan if need.deployment_type is None else family.deployment_type == need.deployment_type
        )
        if not wanted or family.name not in region.families or family.storage_type != "SSD":
            continue
        if need.efa and not family.efa_step_gib:
            continue
        for tier in family.tiers or (None,):
            pinned = need.per_unit_storage_throughput
            if (pinned and tier != pinned) or (family.metadata and tier not in region.tiers):
                continue
            found += _of_kind(need, family, tier, rank, facts, prices)
    return sorted(found, key=lambda rung: rung.order)


def _of_kind(
    need: Need, family: Family, tier: int | None, rank: int, facts: Facts, prices: Prices
) -> Iterator[Rung]:
    row = family.speed(tier)
    if row is None:
        return
    per_server = facts.rest["client"]["node_server_mbps"]
    for gib in _sizes(family, tier, efa=need.efa):
        config = LustreConfig(
            deployment_type=family.deployment_type,
            storage_capacity_gib=gib,
            per_unit_storage_throughput=tier,
            efa=need.efa,
            metadata_mode=MetadataMode.AUTOMATIC if family.metadata else None,
        )
        disk = min(row.read_mbps, row.network_mbps) * gib / GIB_PER_TIB
        usd = prices.file_system_usd_per_hour(config, need.region)
        yield Rung(
            config=config,
            gib=gib,
            disk_mbps=disk,
            node_mbps=math.inf if need.efa else math.ceil(gib / row.server_gib) * per_server,
            usd_per_hour=usd,
            order=(0, usd, rank, gib) if usd is not None else (1, rank, disk, gib),
        )


def _sizes(family: Family, tier: int | None, *, efa: bool) -> Iterator[int]:
    step = family.step_gib(tier, efa=efa)
    if not step:
        return
    if not efa:
        yield from (size for size in (family.sizes or {}).get("first_gib", ()) if size % step)
    count = 1
    while count * step <= _LARGEST_GIB:
        yield count * step
        count = count + 1 if count < _STEPS else math.ceil(count * _GROWTH)


def capacity_floor_gib(need: Need, facts: Facts) -> float:
    """Return the storage that holds the data and two checkpoints with room to spare.

    FSx stops loading, and reads fail, when a storage target is full.
    """
    needed: float = (need.dataset_bytes + 2 * need.checkpoint_bytes) / facts.rest["rules"]["fill"] / GIB
    return needed


def choose(options: Sequence[Rung], target_mbps: float, floor_gib: float, nodes: int) -> Rung | None:
    """Return the cheapest by the hour that reads at least `target_mbps` and holds the data.

    For one target a larger data set or more nodes never get a slower file system: the answer for each smaller
    size, and for each smaller number of nodes that a server could hold back, is a lower bound of the next.
    """
    fit = [rung for rung in options if rung.gib >= floor_gib]
    if not fit:
        return None
    levels = sorted({rung.gib for rung in options if rung.gib < floor_gib} | {floor_gib})
    bounds = [target_mbps] * len(levels)
    best: Rung | None = None
    for count in range(1, min(nodes, _unhindered(options)) + 1):
        least = 0.0
        for at, gib in enumerate(levels):
            best = _cheapest(options, max(least, bounds[at]), gib, count) or max(
                fit, key=lambda rung: rung.read_mbps(count)
            )
            least = bounds[at] = best.read_mbps(count)
    return best


def _unhindered(options: Iterable[Rung]) -> int:
    """Return the nodes from which on no file server holds a node back."""
    return max(math.ceil(rung.disk_mbps / rung.node_mbps) for rung in options) or 1


def _cheapest(options: Iterable[Rung], mbps: float, gib: float, nodes: int) -> Rung | None:
    return next((rung for rung in options if rung.gib >= gib and rung.read_mbps(nodes) >= mbps), None)
