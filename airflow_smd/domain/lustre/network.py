"""Whether a file system of a size fits into a subnet and can be reached there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from airflow_smd.errors import Problem

LUSTRE_PORTS = ((988, 988), (1018, 1023))
"""TCP; with 988 alone FSx creates the file system and no client can mount it (user guide, limit-access)."""
ADDRESSES_PER_NODE = 2
"""Least private addresses that SageMaker takes for each training instance (developer guide, train-vpc)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """A subnet as EC2 describes it."""

    subnet_id: str
    vpc_id: str
    availability_zone: str
    cidr: str
    free_addresses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """One rule of a security group: the ports that some peers may use."""

    protocol: str
    """`tcp`, or `-1` for everything."""
    first_port: int
    last_port: int
    group_ids: frozenset[str]
    cidrs: tuple[str, ...]

    def admits(self, ports: tuple[int, int], group_ids: Iterable[str], cidr: str) -> bool:
        """Return whether the rule opens all `ports` to one of the groups or to the whole `cidr`."""
        first, last = ports
        if self.protocol != "-1" and not (
            self.protocol in ("tcp", "6") and self.first_port <= first and last <= self.last_port
        ):
            return False
        return bool(self.group_ids & set(group_ids)) or any(_covers(wide, cidr) for wide in self.cidrs)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityGroup:
    """A security group as EC2 describes it."""

    group_id: str
    vpc_id: str
    inbound: tuple[Opening, ...]
    outbound: tuple[Opening, ...]


def network_problems(
    *,
    subnet_id: str,
    subnet: Subnet | None,
    group_ids: Sequence[str],
    groups: Mapping[str, SecurityGroup],
    addresses: int,
    efa: bool = False,
) -> Iterator[Problem]:
    """Yield everything in the network that keeps a file system from being created or mounted.

    Args:
        subnet_id: as the user gave it.
        subnet: what EC2 has under this id, None if nothing.
        group_ids: as the user gave them.
        groups: those that EC2 has, by id.
        addresses: private addresses that the file system and the training job take.
        efa: the file system speaks EFA, which needs everything open within a group, in both directions.
    """
    if subnet is None:
        yield Problem(
            rule="subnet-missing",
            field="subnet_id",
            value=subnet_id,
            message="There is no such subnet in this account and Region.",
            remedy="Give the subnet that the training job will run in.",
        )
    for group_id in group_ids:
        if group_id not in groups:
            yield Problem(
                rule="security-group-missing",
                field="security_group_ids",
                value=group_id,
                message="There is no such security group in this account and Region.",
                remedy="Give a security group of the subnet's VPC.",
            )
        elif subnet and groups[group_id].vpc_id != subnet.vpc_id:
            yield Problem(
                rule="security-group-elsewhere",
                field="security_group_ids",
                value=group_id,
                message=f"The group is in {groups[group_id].vpc_id}, the subnet in {subnet.vpc_id}.",
                remedy="Give a security group of the subnet's VPC.",
            )
    if subnet is None or not groups:
        return
    if subnet.free_addresses < addresses:
        yield Problem(
            rule="subnet-full",
            field="subnet_id",
            value=subnet_id,
            message=f"{addresses} private addresses are needed for the file system and the training job, "
            f"{subnet.free_addresses} are free.",
            remedy="Use a larger subnet, fewer nodes or a smaller file system.",
        )
    yield from _closed_ports(subnet, group_ids, groups)
    if efa:
        yield from _closed_to_efa(group_ids, groups)


def _closed_ports(
    subnet: Subnet, group_ids: Sequence[str], groups: Mapping[str, SecurityGroup]
) -> Iterator[Problem]:
    for direction, word in (("inbound", "from"), ("outbound", "to")):
        openings = [each for group in groups.values() for each in getattr(group, direction)]
        for ports in LUSTRE_PORTS:
            if not any(each.admits(ports, group_ids, subnet.cidr) for each in openings):
                shown = str(ports[0]) if ports[0] == ports[1] else f"{ports[0]}-{ports[1]}"
                yield Problem(
                    rule="lustre-ports-closed",
                    field="security_group_ids",
                    value=list(group_ids),
                    message=f"TCP {shown} is closed {word} the group itself; Lustre needs 988 and 1018-1023.",
                    remedy=f"Add an {direction} rule for TCP {shown} {word} {group_ids[0]}.",
                )


def _closed_to_efa(group_ids: Sequence[str], groups: Mapping[str, SecurityGroup]) -> Iterator[Problem]:
    for direction in ("inbound", "outbound"):
        openings = [each for group in groups.values() for each in getattr(group, direction)]
        if not any(each.protocol == "-1" and each.group_ids & set(group_ids) for each in openings):
            yield Problem(
                rule="efa-traffic-closed",
                field="security_group_ids",
                value=list(group_ids),
                message=f"EFA needs all {direction} traffic within the group itself; an address range is not "
                "enough.",
                remedy=f"Add an {direction} rule for all traffic with {group_ids[0]} as the other side.",
            )


def _covers(wide: str, narrow: str) -> bool:
    outer, inner = ip_network(wide, strict=False), ip_network(narrow, strict=False)
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]
