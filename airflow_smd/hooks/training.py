"""A connection's training jobs, their logs and their code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_smd.aws.logs import JobLogs
from airflow_smd.aws.source import SourceStore
from airflow_smd.aws.training import TrainingJobs
from airflow_smd.hooks.connection import AwsConnection


class TrainingHook:
    """What a training task needs of AWS.

    Args:
        connection: where the calls go.
        otherwise: botocore settings where neither the task nor the Airflow connection says more.
    """

    def __init__(self, connection: AwsConnection, otherwise: Mapping[str, Any] | None = None) -> None:
        self._connection = connection
        self._otherwise = otherwise

    @property
    def jobs(self) -> TrainingJobs:
        """Return the training jobs."""
        return TrainingJobs(self._connection.client("sagemaker", otherwise=self._otherwise))

    @property
    def logs(self) -> JobLogs:
        """Return the hosts' logs."""
        return JobLogs(self._connection.client("logs", otherwise=self._otherwise))

    def source(self, work_uri: str) -> SourceStore:
        """Return the store of training code under `work_uri`."""
        return SourceStore(self._connection.client("s3"), work_uri)
