"""SageMaker training jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from airflow_smd.aws.jobs import NOT_FOUND, SageMakerJobs, error_code, unix
from airflow_smd.domain.training import TrainingRun, TrainingStatus
from airflow_smd.errors import NameTaken, UnexpectedAnswer

PAGE = 100
"""ListTrainingJobs gives no more, and ten if not asked."""
MOST_PAGES = 20
LATE_SECONDS = 60.0
"""How much later than a newer change one may appear in the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """A page of what changed since a time."""

    runs: Sequence[TrainingRun]
    """Name, ARN and status only."""
    newest: float
    """Unix time, by AWS's clock, of the newest change on the page."""
    token: str | None
    """Of the next page; a page with one may be empty."""


class TrainingJobs(SageMakerJobs[TrainingRun]):
    """The training jobs of one account and Region."""

    def launch(self, request: Mapping[str, Any]) -> None:
        """Start the job that `request` (CreateTrainingJob) describes; NameTaken if it is there already."""
        try:
            self._client.create_training_job(**request)
        except ClientError as error:
            if error_code(error) == "ResourceInUse":
                raise NameTaken(request["TrainingJobName"]) from error
            raise

    def look(self, job_name: str) -> TrainingRun | None:
        """Return the job as it stands, None if there is no job of this name."""
        try:
            return _run(self._client.describe_training_job(TrainingJobName=job_name))
        except ClientError as error:
            if error_code(error) in NOT_FOUND:
                return None
            raise

    def changed(self, after: float, token: str | None = None) -> Changes:
        """Return a page of the account's jobs that were modified after `after` (Unix time).

        A status that is new to us is left out: what we wait for is described, too, and refused there.
        """
        answer = self._client.list_training_jobs(
            LastModifiedTimeAfter=datetime.fromtimestamp(after, UTC),
            MaxResults=PAGE,
            SortOrder="Descending",
            **({"NextToken": token} if token else {}),
        )
        found = answer["TrainingJobSummaries"]
        times = [unix(item.get("LastModifiedTime")) or after for item in found]
        known = [item for item in found if item["TrainingJobStatus"] in set(TrainingStatus)]
        runs = [_listed(item) for item in known]
        return Changes(runs=runs, newest=max(times, default=after), token=answer.get("NextToken"))

    def stop(self, job_name: str) -> None:
        """Ask for the job's end, which leaves it 120 s to save its work; a job that is over is left alone."""
        try:
            self._client.stop_training_job(TrainingJobName=job_name)
        except ClientError as error:
            if error_code(error) not in NOT_FOUND:
                raise


class ChangeList:
    """The list of what changes in the account, read on and on, a page a call.

    Args:
        after: Unix time after which changes count.
    """

    def __init__(self, after: float) -> None:
        self._after = self._newest = after
        self._pages = 0
        self.token: str | None = None
        """Of the next page; None when the list has been read to its end."""

    def read(self, jobs: TrainingJobs) -> Sequence[TrainingRun]:
        """Return the next page; after the last one the list begins anew, by AWS's clock: ours may jump."""
        try:
            page = jobs.changed(self._after, self.token)
        except Exception:
            self.token, self._pages = None, 0
            raise
        self._newest = max(self._newest, page.newest)
        self.token, self._pages = page.token, self._pages + 1
        if not self.token:
            self.move_on()
        return page.runs

    @property
    def endless(self) -> bool:
        """Tell whether the list goes on for too long; AWS may answer with any number of empty pages."""
        return self._pages >= MOST_PAGES

    def move_on(self) -> None:
        """Begin anew a little before the newest change that was read."""
        self._after = max(self._after, self._newest - LATE_SECONDS)
        self.token, self._pages = None, 0


def _listed(item: Mapping[str, Any]) -> TrainingRun:
    return TrainingRun(
        job_name=item["TrainingJobName"],
        job_arn=item["TrainingJobArn"],
        status=TrainingStatus(item["TrainingJobStatus"]),
        secondary_status=item.get("SecondaryStatus", item["TrainingJobStatus"]),
    )


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
        started_at=unix(answer.get("TrainingStartTime")),
        ended_at=unix(answer.get("TrainingEndTime")),
        billable_seconds=answer.get("BillableTimeInSeconds"),
        metrics={item["MetricName"]: item["Value"] for item in answer.get("FinalMetricDataList", [])},
    )
