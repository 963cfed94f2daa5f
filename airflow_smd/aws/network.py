"""Subnets and security groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_smd.domain.lustre.network import Opening, SecurityGroup, Subnet


class Network:
    """The VPC resources of one account and Region.

    Args:
        client: a boto3 `ec2` client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def subnet(self, subnet_id: str) -> Subnet | None:
        """Return a subnet, None if there is none of this id."""
        # a filter, because an unknown id among SubnetIds is an error and not an empty answer
        found = self._client.describe_subnets(Filters=[{"Name": "subnet-id", "Values": [subnet_id]}])[
            "Subnets"
        ]
        return next(
            (
                Subnet(
                    subnet_id=each["SubnetId"],
                    vpc_id=each["VpcId"],
                    availability_zone=each["AvailabilityZone"],
                    cidr=each["CidrBlock"],
                    free_addresses=each["AvailableIpAddressCount"],
                )
                for each in found
            ),
            None,
        )

    def security_groups(self, group_ids: Sequence[str]) -> dict[str, SecurityGroup]:
        """Return those of the groups that exist, by id."""
        if not group_ids:
            return {}
        filters = [{"Name": "group-id", "Values": list(group_ids)}]
        found = self._client.describe_security_groups(Filters=filters)["SecurityGroups"]
        return {
            each["GroupId"]: SecurityGroup(
                group_id=each["GroupId"],
                vpc_id=each.get("VpcId", ""),
                inbound=tuple(map(_opening, each.get("IpPermissions", ()))),
                outbound=tuple(map(_opening, each.get("IpPermissionsEgress", ()))),
            )
            for each in found
        }


def _opening(rule: Mapping[str, Any]) -> Opening:
    return Opening(
        protocol=rule["IpProtocol"],
        first_port=rule.get("FromPort", 0),
        last_port=rule.get("ToPort", 65535),
        group_ids=frozenset(
            pair["GroupId"] for pair in rule.get("UserIdGroupPairs", ()) if "GroupId" in pair
        ),
        cidrs=(
            *(each["CidrIp"] for each in rule.get("IpRanges", ())),
            *(each["CidrIpv6"] for each in rule.get("Ipv6Ranges", ())),
        ),
    )
