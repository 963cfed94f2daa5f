"""Subnets and security groups, read from EC2's answers."""

from __future__ import annotations

import pytest

from airflow_smd.aws.network import Network
from airflow_smd.domain.lustre.network import LUSTRE_PORTS
from tests.fakes.lustre import CLOSED, EVERYWHERE, OPEN, SUBNET, FakeEc2


@pytest.fixture
def ec2() -> FakeEc2:
    return FakeEc2()


def test_a_subnet_tells_its_vpc_and_free_addresses(ec2: FakeEc2) -> None:
    subnet = Network(ec2).subnet(SUBNET)

    assert subnet
    assert (subnet.vpc_id, subnet.free_addresses, subnet.cidr) == (
        "vpc-0123456789abcdef0",
        200,
        "10.0.0.0/24",
    )


def test_a_subnet_that_is_not_there_is_none(ec2: FakeEc2) -> None:
    assert Network(ec2).subnet("subnet-0aaaaaaaaaaaaaaa0") is None


def test_groups_that_are_not_there_are_left_out(ec2: FakeEc2) -> None:
    assert set(Network(ec2).security_groups([OPEN, "sg-0aaaaaaaaaaaaaaa0"])) == {OPEN}


def test_no_ids_ask_for_no_groups(ec2: FakeEc2) -> None:
    """Without a filter EC2 would return every group of the account."""
    assert Network(ec2).security_groups([]) == {}


def test_a_rule_opens_its_ports_to_its_peers(ec2: FakeEc2) -> None:
    ec2.groups[CLOSED] = [EVERYWHERE]

    groups = Network(ec2).security_groups([OPEN, CLOSED])

    for ports in LUSTRE_PORTS:
        assert any(each.admits(ports, [OPEN], "10.0.0.0/24") for each in groups[OPEN].inbound)
        assert not any(each.admits(ports, [CLOSED], "10.0.0.0/24") for each in groups[OPEN].inbound)
        assert any(each.admits(ports, [], "10.0.0.0/24") for each in groups[CLOSED].inbound)
