"""What the model expects of one file system in one run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from airflow_smd.domain.cost import Prices
from airflow_smd.domain.lustre.facts import GIB_PER_TIB, Facts
from airflow_smd.domain.lustre.model import create_seconds, epoch, load_seconds, speeds
from airflow_smd.domain.lustre.need import Need
from airflow_smd.domain.lustre.rate import MODELLED_EPOCHS
from airflow_smd.domain.lustre.values import Limit, LustreConfig

SHOWN_EPOCHS = 20
_HARDLY = 0.01
"""Waiting for less than this share of the run is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the model expects of one file system in one run."""

    config: LustreConfig
    read_mbps: float
    """The nodes together, nothing cached, no burst, a TiB being 1024 GiB."""
    nominal_read_mbps: float
    """The same as AWS's examples count it, a TiB being 1000 GiB."""
    ram_cache_gib: float
    """Memory of the file servers."""
    metadata_iops: int | None
    """None where AWS publishes none."""
    epoch_seconds: tuple[float, ...]
    """Each of the first 20 epochs."""
    best_epoch_seconds: tuple[float, ...]
    """The same on network credits, which last for minutes to hours."""
    waiting_seconds: float
    """GPUs waiting for storage over the whole run."""
    limited_by: Limit
    """What they wait for most; COMPUTE where they hardly wait."""
    training_seconds: float
    create_seconds: float
    load_seconds: float
    """Of the preloading job; 0 when the first epoch loads."""
    usd_per_hour: float | None
    """Of the file system; None where we have no price."""
    usd_per_run: float | None
    """Nodes while training, file system from creation to the end of it; None where a price is missing."""

    @property
    def deployment_type(self) -> str:
        """Return SCRATCH_2 or another, as FSx spells it."""
        return self.config.deployment_type

    @property
    def storage_capacity_gib(self) -> int:
        """Return the size."""
        return self.config.storage_capacity_gib or 0

    @property
    def per_unit_storage_throughput(self) -> int | None:
        """Return the MB/s per TiB that a persistent type was bought with."""
        return self.config.per_unit_storage_throughput

    @property
    def efa(self) -> bool:
        """Return whether its servers speak EFA."""
        return self.config.efa

    @property
    def name(self) -> str:
        """Return it in words: `PERSISTENT_2-250, 9,600 GiB`."""
        tier = f"-{self.per_unit_storage_throughput}" if self.per_unit_storage_throughput else ""
        return f"{self.deployment_type}{tier}{' EFA' if self.efa else ''}, {self.storage_capacity_gib:,} GiB"


def node_usd_per_hour(need: Need, prices: Prices) -> float | None:
    """Return the price of one node, None where neither the user nor our table knows it."""
    if need.node_usd_per_hour is not None:
        return need.node_usd_per_hour
    price = prices.instance(need.instance_type, need.region)
    return price.usd if price else None


def forecast(need: Need, config: LustreConfig, facts: Facts, prices: Prices) -> Forecast | None:
    """Return what to expect of `config`; None where AWS publishes no speeds for it."""
    speed = speeds(config, need, facts)
    if speed is None:
        return None
    modelled = [epoch(need, speed, facts, number) for number in range(min(need.epochs, MODELLED_EPOCHS))]
    repeats = [1] * (len(modelled) - 1) + [need.epochs - len(modelled) + 1]
    training = sum(one.seconds * times for one, times in zip(modelled, repeats, strict=True))
    waits: dict[Limit, float] = defaultdict(float)
    for one, times in zip(modelled, repeats, strict=True):
        waits[one.limited_by] += one.waiting_seconds * times
    waiting = sum(waits.values())
    limit = max(waits, key=lambda name: waits[name]) if waiting > _HARDLY * training else Limit.COMPUTE
    gib = config.storage_capacity_gib or 0
    create = create_seconds(gib, facts)
    load = load_seconds(need, gib, speed.write_mbps, facts) if need.preload else 0.0
    usd, node_usd = prices.file_system_usd_per_hour(config, need.region), node_usd_per_hour(need, prices)
    shown = range(min(need.epochs, SHOWN_EPOCHS))
    read = min(speed.disk_mbps, speed.network_mbps, speed.clients_mbps)
    return Forecast(
        config=config,
        read_mbps=read,
        nominal_read_mbps=min(read * GIB_PER_TIB / 1000, speed.clients_mbps),
        ram_cache_gib=speed.ram_gib,
        metadata_iops=speed.metadata_iops,
        epoch_seconds=tuple(modelled[number].seconds for number in shown),
        best_epoch_seconds=tuple(epoch(need, speed, facts, number, burst=True).seconds for number in shown),
        waiting_seconds=waiting,
        limited_by=limit,
        training_seconds=training,
        create_seconds=create,
        load_seconds=load,
        usd_per_hour=usd,
        usd_per_run=None
        if usd is None or node_usd is None
        else (need.nodes * node_usd * training + usd * (create + load + training)) / 3600,
    )
