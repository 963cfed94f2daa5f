"""How fast the storage should read: as fast as more speed still pays for itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from airflow_smd.domain.lustre.facts import Facts
from airflow_smd.domain.lustre.ladder import Rung
from airflow_smd.domain.lustre.model import client_miss, create_seconds, load_seconds
from airflow_smd.domain.lustre.need import Need
from airflow_smd.domain.units import MB

MODELLED_EPOCHS = 200
"""Later epochs are taken to be like this one; by then no cache changes."""
_WRITE_SHARE = 0.5
"""Of its read rate, at least, a file system writes (SCRATCH_2)."""


def target_mbps(need: Need, options: Sequence[Rung], node_usd_per_hour: float | None, facts: Facts) -> float:
    """Return the read rate beyond which another step costs more than the waiting it saves.

    Counts the page caches of the nodes but not the memory of the file servers, which only
    bursts and some kinds can use. Without prices it is the share of the plain rule that AWS's own example
    found enough.
    """
    priced = [rung for rung in options if rung.usd_per_hour is not None]
    if node_usd_per_hour is None or not priced:
        return float(facts.rest["rules"]["share_without_price"]) * need.required_mbps
    money = _Money(need, facts, node_usd_per_hour)
    best_rate, best_usd, load_usd_per_second = 0.0, math.inf, math.inf
    for rung in _frontier(priced):
        usd_per_hour = rung.usd_per_hour or 0
        if money.at_least(usd_per_hour) > best_usd:
            break
        # What loading costs never rises with the rate here. It would where S3 is the limit, and then a larger
        # data set could get a slower file system, which nobody would understand.
        loading = load_seconds(need, rung.gib, rung.disk_mbps * _WRITE_SHARE, facts)
        load_usd_per_second = min(load_usd_per_second, usd_per_hour * loading)
        usd = money.of_run(rung, usd_per_hour, load_usd_per_second if need.preload else 0.0)
        if usd < best_usd:
            best_rate, best_usd = rung.disk_mbps, usd
    return best_rate


def _frontier(priced: Sequence[Rung]) -> list[Rung]:
    """Return those that nothing as fast undercuts, slowest first."""
    found: list[Rung] = []
    for rung in sorted(priced, key=lambda rung: (-rung.disk_mbps, rung.order)):
        if not found or (rung.usd_per_hour or 0) < (found[-1].usd_per_hour or 0):
            found.append(rung)
    return found[::-1]


class _Money:
    """What a run costs in US dollars times 3600, if its storage reads at a given rate."""

    def __init__(self, need: Need, facts: Facts, node_usd_per_hour: float) -> None:
        self.need, self.facts = need, facts
        self.nodes_usd = need.nodes * node_usd_per_hour
        modelled = min(need.epochs, MODELLED_EPOCHS)
        # Where the data exceed a node's memory, more nodes make its cache better. Counting on that would give
        # more nodes a slower file system, so a node alone is the least favourable case planned for.
        alone = replace(need, nodes=1)
        self.misses = [
            max(client_miss(need, facts, number), client_miss(alone, facts, number))
            for number in range(modelled)
        ]
        self.nic_mbps: float = need.nodes * facts.rest["client"]["efa_node_mbps" if need.efa else "node_mbps"]
        self.compute_seconds = need.epochs * need.compute_seconds

    def at_least(self, usd_per_hour: float) -> float:
        """Return what it costs at this price even if no GPU ever waits."""
        return (self.nodes_usd + usd_per_hour) * self.compute_seconds

    def of_run(self, rung: Rung, usd_per_hour: float, loading: float) -> float:
        """Return nodes and file system, the latter for the run as it should last and for its making."""
        need, rate = self.need, rung.disk_mbps
        megabytes, seconds, last = need.dataset_bytes / MB, 0.0, 0.0
        floor = 0.0 if need.preload else load_seconds(need, rung.gib, rate * _WRITE_SHARE, self.facts)
        for miss in self.misses:
            last = max(need.compute_seconds, miss * megabytes / min(rate, self.nic_mbps), floor)
            seconds, floor = seconds + last, 0.0
        seconds += (need.epochs - len(self.misses)) * last
        seconds += need.epochs * need.checkpoint_bytes / MB / (rate * _WRITE_SHARE)
        kept = create_seconds(rung.gib, self.facts) + self.compute_seconds
        return self.nodes_usd * seconds + usd_per_hour * kept + loading
