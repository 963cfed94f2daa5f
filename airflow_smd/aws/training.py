"""SageMaker training jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import count
from typing import Any

from botocore.exceptions import ClientError

from airflow_smd.domain.identity import TaskIdentity
from airflow_smd.domain.training import TrainingRun, TrainingStatus
from airflow_smd.errors import NameTaken, UnexpectedAnswer


class TrainingJobs:
    """The training jobs of one account and Region.

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

    def launch(self, request: Mapping[str, Any]) -> None:
        """Start the job that `request` (CreateTrainingJob) describes; NameTaken if it is there already."""
        try:
            self._client.create_training_job(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceInUse":
                raise NameTaken(request["TrainingJobName"]) from error
            raise

    def look(self, job_name: str) -> TrainingRun | None:
        """Return the job as it stands, None if there is no job of this name."""
        try:
            return _run(self._client.describe_training_job(TrainingJobName=job_name))
        except ClientError as error:
            # DescribeTrainingJob has no error of its own for this; the text is AWS's
            if error.response["Error"]["Code"] in ("ResourceNotFound", "ValidationException") and (
                "not found" in error.response["Error"]["Message"].lower()
            ):
                return None
            raise

    def attempts(self, identity: TaskIdentity) -> list[TrainingRun]:
        """Return the jobs of this generation of this task, oldest first.

        One DescribeTrainingJob a job and one more: ListTrainingJobs allows two requests a second in the
        whole account, so no task may depend on it.
        """
        runs: list[TrainingRun] = []
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

    def stop(self, job_name: str) -> None:
        """Ask for the job's end, which leaves it 120 s to save its work; a job that is over is left alone."""
        try:
            self._client.stop_training_job(TrainingJobName=job_name)
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("ValidationException", "ResourceNotFound"):
                raise


def _run(answer: Mapping[str, Any]) -> TrainingRun:
    try:
        status = TrainingStatus(answer["TrainingJobStatus"])
    except ValueError as error:
        raise UnexpectedAnswer(
            f"{answer['TrainingJobName']} has the status {answer['TrainingJobStatus']!r}"
        ) from error
    resources = answer.get("ResourceConfig", {})
    groups = resources.get("InstanceGroups", [])
    return TrainingRun(
        job_name=answer["TrainingJobName"],
        job_arn=answer["TrainingJobArn"],
        status=status,
        secondary_status=answer["SecondaryStatus"],
        failure_reason=answer.get("FailureReason", ""),
        model_uri=answer.get("ModelArtifacts", {}).get("S3ModelArtifacts"),
        image_uri=answer.get("AlgorithmSpecification", {}).get("TrainingImage"),
        instance_type=resources.get("InstanceType")
        or "+".join(group["InstanceType"] for group in groups)
        or None,
        instance_count=resources.get("InstanceCount") or sum(group["InstanceCount"] for group in groups),
        started_at=_unix(answer.get("TrainingStartTime")),
        ended_at=_unix(answer.get("TrainingEndTime")),
        billable_seconds=answer.get("BillableTimeInSeconds"),
        metrics={item["MetricName"]: item["Value"] for item in answer.get("FinalMetricDataList", [])},
    )


def _unix(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
