"""A connection's reports."""

from __future__ import annotations

from airflow_smd.aws.report import Reports
from airflow_smd.hooks.connection import AwsConnection


def reports(connection: AwsConnection, work_uri: str) -> Reports:
    """Return the reports under `work_uri`."""
    return Reports(connection.client("s3"), work_uri)
