"""How long an epoch takes on a file system: the slowest of compute, disk, network, clients and metadata.

The caches are modelled in closed form, see docs/why-sizing.md. Speeds are baselines: bursts end within hours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from airflow_smd.domain.lustre.facts import GIB_PER_TIB, Facts
from airflow_smd.domain.lustre.need import Need
from airflow_smd.domain.lustre.rule import automatic_iops
from airflow_smd.domain.lustre.values import Access, DeploymentType, Limit, LustreConfig, MetadataMode
from airflow_smd.domain.units import GIB, MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """What one file system can do, in MB/s, counting a TiB as 1024 GiB."""

    gib: int
    disk_mbps: float
    write_mbps: float
    network_mbps: float
    burst_mbps: float
    ram_gib: float
    """Memory of the file servers, which caches what was read last."""
    clients_mbps: float
    """What the nodes can take together: their networks, and on TCP one client from one server."""
    servers: int
    metadata_iops: int | None
    """None where AWS publishes none (all but PERSISTENT_2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One epoch as the model sees it."""

    seconds: float
    waiting_seconds: float
    """Of these the GPUs wait."""
    limited_by: Limit


def speeds(config: LustreConfig, need: Need, facts: Facts) -> Speeds | None:
    """Return the speeds of `config` for the nodes of `need`; None for a tier without known figures."""
    family = facts.families.get((config.deployment_type, config.storage_type))
    row = family.speed(config.per_unit_storage_throughput) if family else None
    if row is None or config.storage_capacity_gib is None:
        return None
    gib = config.storage_capacity_gib
    tib = gib / GIB_PER_TIB
    servers = math.ceil(gib / row.server_gib)
    burst = row.network_burst_mbps
    if config.deployment_type == DeploymentType.PERSISTENT_1 and need.region in facts.slow_burst["regions"]:
        burst = min(burst, facts.slow_burst["persistent_1_burst_mbps"])
    client = facts.rest["client"]
    node_mbps = (
        client["efa_node_mbps"]
        if config.efa
        else min(client["node_mbps"], servers * client["node_server_mbps"])
    )
    return Speeds(
        gib=gib,
        disk_mbps=row.read_mbps * tib,
        write_mbps=min(row.write_mbps, row.network_mbps) * tib,
        network_mbps=row.network_mbps * tib,
        burst_mbps=burst * tib,
        ram_gib=row.ram_gib * tib,
        clients_mbps=need.nodes * node_mbps,
        servers=servers,
        metadata_iops=_iops(config, gib, facts),
    )


def _iops(config: LustreConfig, gib: int, facts: Facts) -> int | None:
    if not config.metadata_mode:
        return None
    provisioned = config.metadata_mode == MetadataMode.USER_PROVISIONED
    return config.metadata_iops if provisioned else automatic_iops(gib, facts)


def lru_hit(fraction: float) -> float:
    """Return the share of reads that hit a cache of `fraction` of the data, read in random order."""
    return reuse_hit(fraction, nodes=1, epoch=1)


def reuse_hit(fraction: float, *, nodes: int, epoch: int) -> float:
    """Return the share of a node's reads in `epoch` (from 0) that its own memory still holds.

    In every epoch the node reads another random 1/nodes of the data and keeps the last `fraction` of it. An
    item was read last j epochs ago with probability 1/nodes · (1 − 1/nodes)^(j−1), and is still there if the
    node has read no more than `fraction` of the data since. Since then it has left unread
    (1 − x/nodes)(1 − 1/nodes)^(j−1)(1 − y/nodes), with x and y the parts of the two epochs that lie between.
    """
    if fraction <= 0 or epoch <= 0:
        return 0.0
    keep = 1 - 1 / nodes
    if fraction >= 1:
        return 1 - keep**epoch
    hit, reach = 0.0, 1.0
    for _ in range(min(epoch, 5000)):
        # `reach` is (1 − 1/nodes)^(j−1): the chance of not being read in j−1 epochs.
        if reach <= 1e-9:
            break
        still_there = _unread_at_least((1 - fraction) / reach, nodes)
        hit += reach / nodes * still_there
        if still_there == 0:
            break
        reach *= keep
    return hit


def _unread_at_least(a: float, nodes: int) -> float:
    """Return P((1 − x/nodes)(1 − y/nodes) ≥ a) for uniform x and y."""
    low = 1 - 1 / nodes
    if a <= low * low or a <= 0:
        return 1.0
    if a >= 1:
        return 0.0
    if a >= low:
        return nodes * nodes * (1 - a + a * math.log(a))
    return 1 - nodes * nodes * (a * math.log(a / low**2) - a + low * low)


def client_miss(need: Need, facts: Facts, epoch: int) -> float:
    """Return the share of an epoch's bytes that the nodes' page caches do not hold, from epoch 0."""
    memory = need.memory_gib * GIB * facts.rest["rules"]["page_cache_share"]
    if need.access == Access.RESHUFFLED:
        return 1 - reuse_hit(memory / need.dataset_bytes, nodes=need.nodes, epoch=epoch)
    return 1 - _same_share_hit(memory * need.nodes / need.dataset_bytes, need.access, epoch)


def server_hit(need: Need, ram_gib: float, epoch: int) -> float:
    """Return the share of the servers' reads that their memory holds; none in the first epoch."""
    return _same_share_hit(ram_gib * GIB / need.dataset_bytes, need.access, epoch)


def _same_share_hit(fraction: float, access: Access, epoch: int) -> float:
    if epoch == 0:
        return 0.0
    if access == Access.SEQUENTIAL:
        # Least recently used forgets exactly what comes next unless all of it fits.
        return 1.0 if fraction >= 1 else 0.0
    return lru_hit(fraction)


def epoch(
    need: Need, speed: Speeds, facts: Facts, number: int, *, burst: bool = False, server_cache: bool = True
) -> Epoch:
    """Return how long epoch `number` (from 0) takes and what decides it.

    Args:
        need: the run.
        speed: the file system.
        facts: the tables.
        number: 0 for the first epoch.
        burst: count on network credits: the best case, and not a promise.
        server_cache: count on the memory of the file servers.
    """
    megabytes = need.dataset_bytes / MB * client_miss(need, facts, number)
    hit = server_hit(need, speed.ram_gib, number) if server_cache else 0.0
    stages = {
        Limit.COMPUTE: need.compute_seconds,
        Limit.DISK: megabytes * (1 - hit) / speed.disk_mbps,
        Limit.NETWORK: megabytes / (speed.burst_mbps if burst else speed.network_mbps),
        Limit.CLIENT: megabytes / speed.clients_mbps,
    }
    if need.file_count and speed.metadata_iops:
        opens_per_second = facts.rest["metadata"]["opens_per_iops"] * speed.metadata_iops
        stages[Limit.METADATA] = need.file_count / opens_per_second
    if number == 0 and not need.preload:
        stages[Limit.LOAD] = load_seconds(need, speed.gib, speed.write_mbps, facts)
    # Of equals the first decides, so that a file system which keeps up is never blamed.
    limit = max(stages, key=lambda name: stages[name])
    stall = need.checkpoint_bytes / MB / speed.write_mbps
    waiting = stages[limit] - need.compute_seconds
    return Epoch(
        seconds=stages[limit] + stall,
        waiting_seconds=waiting + stall,
        limited_by=Limit.CHECKPOINT if stall > waiting else limit,
    )


def load_seconds(need: Need, gib: int, write_mbps: float, facts: Facts) -> float:
    """Return how long it takes to read every file from S3 once, which fills the file system.

    The one published measurement is taken as the least, and as proportional to the size above its own.
    """
    table = facts.rest["load"]
    scale = max(1.0, gib / table["measured_on_gib"])
    by_bytes: float = need.dataset_bytes / MB / min(table["mbps"] * scale, write_mbps)
    by_files: float = (need.file_count or 0) / (table["files_per_second"] * scale)
    return max(by_bytes, by_files)


def create_seconds(gib: int, facts: Facts) -> float:
    """Return how long FSx takes to make a file system of `gib` GiB."""
    table = facts.rest["create"]
    return float(table["seconds"] + table["seconds_per_gib"] * gib)
