"""A connection's account, asked before a run."""

from __future__ import annotations

from airflow_smd.aws.preflight import Account
from airflow_smd.hooks.connection import AwsConnection


def account(connection: AwsConnection) -> Account:
    """Return what answers questions about the account of `connection`."""
    return Account(s3=connection.client("s3"), iam=connection.client("iam"))
