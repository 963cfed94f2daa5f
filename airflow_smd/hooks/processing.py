"""A connection's processing jobs, their logs and data sets."""

from __future__ import annotations

from airflow_smd.aws.dataset import Datasets
from airflow_smd.aws.logs import JobLogs
from airflow_smd.aws.processing import ProcessingJobs
from airflow_smd.hooks.connection import AwsConnection

LOG_GROUP = "/aws/sagemaker/ProcessingJobs"


class ProcessingHook:
    """What a preprocessing task needs of AWS.

    Args:
        connection: where the calls go.
    """

    def __init__(self, connection: AwsConnection) -> None:
        self._connection = connection

    @property
    def jobs(self) -> ProcessingJobs:
        """Return the processing jobs."""
        return ProcessingJobs(self._connection.client("sagemaker"))

    @property
    def logs(self) -> JobLogs:
        """Return the hosts' logs."""
        return JobLogs(self._connection.client("logs"), group=LOG_GROUP)

    @property
    def datasets(self) -> Datasets:
        """Return the data sets; buckets outside the jobs' Region are refused."""
        client = self._connection.client("s3")
        return Datasets(client, region=client.meta.region_name)
