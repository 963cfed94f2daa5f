"""Whether clients reach the file system."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_smd.domain.lustre.network import Opening, SecurityGroup, Subnet, network_problems

OURS, OTHER = "sg-00000001", "sg-00000002"
SUBNET = Subnet(
    subnet_id="subnet-1", vpc_id="vpc-1", availability_zone="a", cidr="10.0.1.0/24", free_addresses=10
)
ALL = Opening(protocol="-1", first_port=0, last_port=65535, group_ids=frozenset(), cidrs=("0.0.0.0/0",))


def tcp(first: int, last: int, *cidrs: str, group: str = "", protocol: str = "tcp") -> Opening:
    return Opening(
        protocol=protocol, first_port=first, last_port=last, group_ids=frozenset({group}), cidrs=cidrs
    )


def rules(*inbound: Opening, outbound: tuple[Opening, ...] = (ALL,), **changes: Any) -> list[str]:
    group = SecurityGroup(group_id=OURS, vpc_id="vpc-1", inbound=inbound, outbound=outbound)
    arguments: dict[str, Any] = {
        "subnet_id": "subnet-1",
        "subnet": SUBNET,
        "group_ids": [OURS],
        "groups": {OURS: group},
        "addresses": 4,
        **changes,
    }
    return [problem.rule for problem in network_problems(**arguments)]


@pytest.mark.parametrize(
    "inbound",
    [
        pytest.param([tcp(988, 988, group=OURS), tcp(1018, 1023, group=OURS)], id="both ranges from itself"),
        pytest.param([tcp(900, 1100, group=OURS)], id="one wide range"),
        pytest.param([tcp(0, 65535, group=OURS, protocol="-1")], id="everything from itself"),
        pytest.param([tcp(988, 1023, "10.0.0.0/16")], id="the VPC's addresses"),
        pytest.param([tcp(988, 1023, "10.0.1.0/24", group="x", protocol="6")], id="TCP by its number"),
    ],
)
def test_open_ports_are_no_problem(inbound: list[Opening]) -> None:
    assert rules(*inbound) == []


@pytest.mark.parametrize(
    ("inbound", "count"),
    [
        pytest.param([], 2, id="nothing open"),
        pytest.param([tcp(988, 988, group=OURS)], 1, id="988 alone: created, and never mounted"),
        pytest.param([tcp(988, 988, group=OURS), tcp(1021, 1023, group=OURS)], 1, id="the range of 2022"),
        pytest.param([tcp(988, 1023, group=OTHER)], 2, id="open to another group"),
        pytest.param([tcp(988, 1023, group=OURS, protocol="udp")], 2, id="UDP"),
        pytest.param([tcp(988, 1023, "10.0.1.128/25")], 2, id="half of the subnet"),
        pytest.param([tcp(988, 1023, "::/0")], 2, id="IPv6 only"),
    ],
)
def test_closed_ports_are_a_problem_for_each_range(inbound: list[Opening], count: int) -> None:
    assert rules(*inbound) == ["lustre-ports-closed"] * count


def test_closed_ways_out_are_a_problem_too() -> None:
    assert rules(ALL, outbound=(tcp(443, 443, "0.0.0.0/0"),)) == ["lustre-ports-closed"] * 2


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param({"subnet": None}, ["subnet-missing"], id="no subnet"),
        pytest.param({"groups": {}}, ["security-group-missing"], id="no group"),
        pytest.param({"addresses": 11}, ["subnet-full"], id="no room"),
        pytest.param({"addresses": 10}, [], id="just enough room"),
        pytest.param(
            {"subnet": None, "groups": {}}, ["subnet-missing", "security-group-missing"], id="both at once"
        ),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, Any], found: list[str]) -> None:
    assert rules(ALL, **changes) == found


def test_a_group_of_another_vpc_is_a_problem() -> None:
    elsewhere = SecurityGroup(group_id=OURS, vpc_id="vpc-2", inbound=(ALL,), outbound=(ALL,))

    assert rules(groups={OURS: elsewhere}) == ["security-group-elsewhere"]


ITSELF = Opening(protocol="-1", first_port=0, last_port=65535, group_ids=frozenset({OURS}), cidrs=())


def test_efa_wants_all_traffic_within_the_group_in_both_directions() -> None:
    """An address range lets Lustre over TCP through and stops EFA."""
    assert rules(ALL, efa=True) == ["efa-traffic-closed"] * 2
    assert rules(ITSELF, outbound=(ITSELF,), efa=True) == []
