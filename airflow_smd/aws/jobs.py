"""What training and processing jobs of SageMaker have in common."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime
from itertools import count
from typing import Any, Generic, TypeVar

from botocore.exceptions import ClientError

from airflow_smd.domain.identity import TaskIdentity

Run = TypeVar("Run")
NOT_FOUND = ("ResourceNotFound", "ValidationException")
"""What Describe and Stop answer for a name that is unknown, or for a job that is over (Stop). The model knows
only the first; AWS also answers the second, which is all that can be invalid about a name that we made."""


class SageMakerJobs(Generic[Run]):
    """The jobs of one kind of one account and Region.

    Args:
        client: a boto3 `sagemaker` client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def region(self) -> str:
        """Return the Region that the calls go to."""
        name: str = self._client.meta.region_name
        return name

    @abstractmethod
    def look(self, job_name: str) -> Run | None:
        """Return the job as it stands, None if there is no job of this name."""

    def attempts(self, identity: TaskIdentity) -> list[Run]:
        """Return the jobs of this generation of this task, oldest first.

        One Describe a job and one more: ListTrainingJobs allows two requests a second in the whole account,
        so no task may depend on it.
        """
        runs: list[Run] = []
        for attempt in count(1):
            run = self.look(identity.attempt_name(attempt))
            if run is None:
                return runs
            runs.append(run)
        raise AssertionError("count() does not end")

    def owner(self, job_arn: str) -> str | None:
        """Return the `airflow-smd:name` tag of a job: which task started it."""
        tags = self._client.list_tags(ResourceArn=job_arn)["Tags"]
        return next((tag["Value"] for tag in tags if tag["Key"] == "airflow-smd:name"), None)


def error_code(error: ClientError) -> str:
    """Return AWS's code of an error."""
    code: str = error.response["Error"]["Code"]
    return code


def unix(moment: datetime | None) -> float | None:
    """Return a time of boto3 as Unix time."""
    return moment.timestamp() if moment else None
