"""A connection's file systems, and the network and buckets that they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from airflow_smd.aws.buckets import Buckets
from airflow_smd.aws.lustre import FileSystems
from airflow_smd.aws.network import Network
from airflow_smd.domain.lustre.network import network_problems
from airflow_smd.errors import Problem
from airflow_smd.hooks.connection import AwsConnection


class LustreHook:
    """What a file-system task needs of AWS.

    Args:
        connection: where the calls go.
    """

    def __init__(self, connection: AwsConnection) -> None:
        self._connection = connection

    @cached_property
    def file_systems(self) -> FileSystems:
        """Return the file systems."""
        return FileSystems(self._connection.client("fsx"))

    @cached_property
    def network(self) -> Network:
        """Return the subnets and security groups."""
        return Network(self._connection.client("ec2"))

    @cached_property
    def buckets(self) -> Buckets:
        """Return the S3 buckets."""
        return Buckets(self._connection.client("s3"))

    def place_problems(
        self, subnet_id: str, group_ids: Sequence[str], *, addresses: int, efa: bool
    ) -> list[Problem]:
        """Return what in the network keeps a file system from being created or mounted."""
        return list(
            network_problems(
                subnet_id=subnet_id,
                subnet=self.network.subnet(subnet_id),
                group_ids=group_ids,
                groups=self.network.security_groups(group_ids),
                addresses=addresses,
                efa=efa,
            )
        )

    def dataset_problems(self, uri: str) -> list[Problem]:
        """Return what keeps FSx from filling a file system from this S3 prefix."""
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        region, ours = self.buckets.region(bucket), self.file_systems.region
        if region is None:
            wrong = ("bucket-missing", "There is no such bucket.", "Correct the URI, or create the bucket.")
        elif region != ours:
            wrong = (
                "bucket-elsewhere",
                f"The bucket is in {region}, the file system would be in {ours}.",
                f"Copy the data to a bucket in {ours}, or train in {region}.",
            )
        elif not self.buckets.has(bucket, prefix):
            wrong = ("dataset-empty", "There is no object under it.", "Correct the URI, or preprocess first.")
        else:
            return []
        rule, message, remedy = wrong
        return [Problem(rule=rule, field="dataset.uri", value=uri, message=message, remedy=remedy)]
