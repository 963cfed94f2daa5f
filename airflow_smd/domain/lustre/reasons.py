"""The plan in sentences: why this file system, and why not another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from airflow_smd.domain.cost import Prices
from airflow_smd.domain.lustre.facts import GIB_PER_TIB, Facts
from airflow_smd.domain.lustre.forecast import Forecast, forecast, node_usd_per_hour
from airflow_smd.domain.lustre.ladder import Rung
from airflow_smd.domain.lustre.model import client_miss
from airflow_smd.domain.lustre.need import Need
from airflow_smd.domain.lustre.validity import problems
from airflow_smd.domain.lustre.values import Limit
from airflow_smd.domain.units import GB, format_bytes

_TOLERANCE = 1.005
_SAME = 0.01
"""A share of the run's cost too small for the model to see."""
_EFA_MBPS = 10_000
"""FSx for Lustre user guide, efa-file-systems: EFA is recommended above this."""


def why(
    need: Need,
    chosen: Forecast,
    target_mbps: float,
    floor_gib: float,
    same_kind: Sequence[Rung],
    facts: Facts,
    prices: Prices,
) -> tuple[str, ...]:
    """Return what decided the plan, in the order of thought."""
    return (
        *_rates(need, same_kind, floor_gib, facts, prices),
        *_decision(need, chosen, target_mbps, floor_gib, facts, prices),
        *_limits(need, chosen, facts),
        *(
            f"Mind {problem.field}={problem.value}: {problem.message} {problem.remedy}"
            for problem in problems(chosen.config, need.region, facts)
        ),
    )


def _rates(
    need: Need, same_kind: Sequence[Rung], floor_gib: float, facts: Facts, prices: Prices
) -> Iterator[str]:
    sizes = sorted((rung for rung in same_kind if rung.gib >= floor_gib), key=lambda rung: rung.gib)
    cold = next((rung for rung in sizes if rung.read_mbps(need.nodes) >= need.required_mbps), None)
    nominal = next(
        (rung for rung in sizes if rung.read_mbps(need.nodes) * GIB_PER_TIB / 1000 >= need.required_mbps),
        None,
    )
    sentence = (
        f"The plain rule: {format_bytes(need.dataset_bytes)} / {need.compute_seconds:.3g} s = "
        f"{gb_per_second(need.required_mbps)} with nothing cached"
    )
    if cold:
        sentence += f"; of this kind that is {cold.gib:,} GiB"
        if nominal and nominal is not cold:
            sentence += f" ({nominal.gib:,} GiB if a TiB counted as 1000 GiB, as AWS's examples do)"
    yield f"{sentence}."
    if need.epochs > 1:
        yield from _warm(need, sizes, facts, prices)


def _warm(need: Need, sizes: Sequence[Rung], facts: Facts, prices: Prices) -> Iterator[str]:
    bare = replace(need, instance_type=None, memory_per_node_gib=None, gpus_per_node=need.gpus or None)
    warm = _enough_when_warm(bare, sizes, facts, prices)
    if warm:
        yield (
            f"The servers' memory alone makes {warm.name} ({gb_per_second(warm.nominal_read_mbps)} nominal, "
            f"{warm.ram_cache_gib:.1f} GiB) enough after one warm-up epoch, while network credits last: "
            f"epochs of {seconds(warm.best_epoch_seconds[:3])} s."
        )
    miss = client_miss(need, facts, 1)
    if miss < 0.995:
        yield (
            f"The nodes' page caches ({need.memory_gib:,.0f} GiB each, half of it counted) leave {miss:.0%} "
            f"of the second epoch to read: {gb_per_second(need.required_mbps * miss)}, and less later."
        )


def _enough_when_warm(need: Need, sizes: Sequence[Rung], facts: Facts, prices: Prices) -> Forecast | None:
    for rung in sizes:
        if rung.read_mbps(need.nodes) >= need.required_mbps:
            return None
        expected = forecast(need, rung.config, facts, prices)
        if expected and expected.best_epoch_seconds[1] <= need.compute_seconds * _TOLERANCE:
            return expected
    return None


def _decision(
    need: Need, chosen: Forecast, target_mbps: float, floor_gib: float, facts: Facts, prices: Prices
) -> Iterator[str]:
    node_usd = node_usd_per_hour(need, prices)
    if node_usd is None or chosen.usd_per_hour is None:
        missing = " and ".join(
            [
                *([f"a node ({need.instance_type or 'no instance type given'})"] * (node_usd is None)),
                *([f"this file system in {need.region}"] * (chosen.usd_per_hour is None)),
            ]
        )
        share = facts.rest["rules"]["share_without_price"]
        yield (
            f"No price is known for {missing}, so that money could not decide: taken is {share:.0%} "
            f"of the plain rule, {gb_per_second(target_mbps)}, as in AWS's own example (2.4 of 3.33 GB/s)."
        )
    else:
        hour = need.nodes * node_usd
        yield (
            f"{need.nodes} nodes cost ${hour:,.2f} an hour and this file system ${chosen.usd_per_hour:,.2f}. "
            f"Over {need.epochs} epochs the GPUs wait {chosen.waiting_seconds:,.1f} s "
            f"(${hour * chosen.waiting_seconds / 3600:,.2f}); beyond {gb_per_second(target_mbps)} more speed "
            f"costs more than the waiting it saves."
        )
    data = format_bytes(need.dataset_bytes + 2 * need.checkpoint_bytes)
    yield f"{data} of data and checkpoints need {floor_gib:,.0f} GiB with room to spare."


def _limits(need: Need, chosen: Forecast, facts: Facts) -> Iterator[str]:
    yield _LIMITS[chosen.limited_by]
    if chosen.metadata_iops is None and need.file_count:
        yield (
            f"AWS publishes no metadata limit for {chosen.deployment_type}: opening {need.file_count:,} "
            f"files is not judged."
        )
    if chosen.limited_by is Limit.METADATA and need.file_count:
        opens = facts.rest["metadata"]["opens_per_iops"]
        yield (
            f"{need.file_count:,} opens in {need.compute_seconds:.3g} s need "
            f"{need.file_count / opens / need.compute_seconds:,.0f} metadata IOPS and it has "
            f"{chosen.metadata_iops:,}: pack the files into shards, or provision IOPS."
        )
    if chosen.read_mbps > _EFA_MBPS and not chosen.efa:
        yield "Above 10 GB/s AWS recommends EFA: set efa if your nodes have it."
    prepare = f"Creating it takes about {chosen.create_seconds / 60:.0f} min"
    yield (
        f"{prepare}, loading it {chosen.load_seconds / 60:.0f} min."
        if need.preload
        else (f"{prepare}; the first epoch loads from S3.")
    )


_LIMITS = {
    Limit.COMPUTE: "The GPUs hardly wait: compute decides the time of an epoch.",
    Limit.DISK: "What the GPUs wait for is the disks of the file system.",
    Limit.NETWORK: "What the GPUs wait for is the network of the file servers.",
    Limit.CLIENT: "What the GPUs wait for is the nodes' own way to the servers: 5 Gbit/s between one node "
    "and one server, 100 Gbit/s for a node.",
    Limit.METADATA: "What the GPUs wait for is opening files.",
    Limit.LOAD: "What the GPUs wait for is the first read from S3; preloading would take it off them.",
    Limit.CHECKPOINT: "What the GPUs wait for is writing checkpoints.",
}


def lost_because(loser: Forecast, chosen: Forecast, target_mbps: float) -> str:
    """Return the one difference that decided against `loser`."""
    if loser.usd_per_hour is None and chosen.usd_per_hour is not None:
        return "its price is not in our table, so that it cannot be compared"
    if loser.usd_per_run is not None and chosen.usd_per_run is not None:
        more, longer = loser.usd_per_run - chosen.usd_per_run, loser.waiting_seconds - chosen.waiting_seconds
        if more >= 0:
            wait = f", and the GPUs wait {longer:,.1f} s longer" if longer > 0.05 else ""
            return f"the run would cost ${more:,.2f} more{wait}"
        if -more < _SAME * chosen.usd_per_run:
            return f"the run would cost ${-more:,.2f} less, less than the model can tell"
        return (
            f"the run may cost ${-more:,.2f} less, on caches, credits and loading times that nobody promises"
        )
    if loser.read_mbps < target_mbps:
        return f"it reads {gb_per_second(loser.read_mbps)}, below {gb_per_second(target_mbps)}"
    if loser.usd_per_hour is not None and chosen.usd_per_hour is not None:
        return f"it costs ${loser.usd_per_hour - chosen.usd_per_hour:,.2f} more an hour"
    return "it is larger than needed, or its kind is less simple; no price is known for either"


def gb_per_second(mbps: float) -> str:
    """Return a rate for a person: `3.33 GB/s`."""
    return f"{mbps * 1e6 / GB:.3g} GB/s"


def seconds(values: Sequence[float]) -> str:
    """Return epoch times for a person: `43, 30, 30`."""
    return ", ".join(f"{value:.3g}" for value in values)
