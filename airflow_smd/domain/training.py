"""A training job: where it stands, how it ended, and what a task does next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, assert_never

from airflow_smd.domain.identity import TaskIdentity
from airflow_smd.errors import (
    AlgorithmFailed,
    CapacityUnavailable,
    DataNotReadable,
    ImageNotUsable,
    InternalFailure,
    ResourceLimitReached,
    RuntimeExceeded,
    SpotInterrupted,
    TrainingFailed,
    TrainingStopped,
)


class TrainingStatus(StrEnum):
    """`TrainingJobStatus` of DescribeTrainingJob."""

    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    DELETING = "Deleting"


class Outcome(StrEnum):
    """What a status means for the task that waits."""

    RUNNING = "running"
    ENDING = "ending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


def outcome(status: TrainingStatus) -> Outcome:
    """Return what `status` means; a job that was stopped did not succeed, whoever stopped it."""
    match status:
        case TrainingStatus.IN_PROGRESS:
            return Outcome.RUNNING
        case TrainingStatus.STOPPING | TrainingStatus.DELETING:
            return Outcome.ENDING
        case TrainingStatus.COMPLETED:
            return Outcome.SUCCEEDED
        case TrainingStatus.FAILED | TrainingStatus.STOPPED:
            return Outcome.FAILED
        case _:
            assert_never(status)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """One training job as AWS describes it."""

    job_name: str
    status: TrainingStatus
    secondary_status: str
    job_arn: str = ""
    failure_reason: str = ""
    model_uri: str | None = None
    image_uri: str | None = None
    instance_type: str | None = None
    instance_count: int = 0
    started_at: float | None = None
    """Unix time at which training began; None before."""
    ended_at: float | None = None
    billable_seconds: int | None = None
    """Per instance, as AWS bills it; less than the wall time on Spot."""
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def training_seconds(self) -> float | None:
        """Return the seconds between training's start and end, None if it never got that far."""
        if self.started_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.started_at


@dataclass(frozen=True, slots=True)
class Follow:
    """The job is there already: wait for it, or take its result if it is over."""

    job_name: str


@dataclass(frozen=True, slots=True)
class WaitOut:
    """The job is being stopped: wait until it is gone, then decide again."""

    job_name: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Nothing of this generation runs or succeeded: start this job."""

    job_name: str


def next_step(identity: TaskIdentity, earlier: Sequence[TrainingRun]) -> Follow | WaitOut | Launch:
    """Follow the newest job of this generation unless it failed; then start another."""
    if earlier:
        newest = earlier[-1]
        match outcome(newest.status):
            case Outcome.RUNNING | Outcome.SUCCEEDED:
                return Follow(newest.job_name)
            case Outcome.ENDING:
                return WaitOut(newest.job_name)
            case Outcome.FAILED:
                pass
    return Launch(identity.attempt_name(len(earlier) + 1))


FAILURES: tuple[tuple[str, str, type[TrainingFailed]], ...] = (
    ("CapacityError", "", CapacityUnavailable),
    ("ResourceLimitExceeded", "", ResourceLimitReached),
    ("InternalServerError", "", InternalFailure),
    ("AlgorithmError", "", AlgorithmFailed),
    ("ClientError", "cannot pull", ImageNotUsable),
    ("ClientError", "image", ImageNotUsable),
    ("ClientError", "data download", DataNotReadable),
    ("ClientError", "s3", DataNotReadable),
)
"""How SageMaker's FailureReason begins, a word that it holds, and what that is for us; first match wins."""


def failure(run: TrainingRun) -> TrainingFailed:
    """Return the error for a job that did not succeed."""
    reason = run.failure_reason or run.secondary_status
    if run.secondary_status in ("MaxRuntimeExceeded", "MaxWaitTimeExceeded"):
        return RuntimeExceeded(run.job_name, reason)
    if run.secondary_status == "Interrupted":
        return SpotInterrupted(run.job_name, reason)
    if run.status is TrainingStatus.STOPPED:
        return TrainingStopped(run.job_name, reason)
    for head, word, kind in FAILURES:
        if reason.startswith(head) and word in reason.lower():
            return kind(run.job_name, reason)
    return TrainingFailed(run.job_name, reason)


def channel_input(file_system: Mapping[str, Any]) -> dict[str, Any]:
    """Return the SDK's form of the channel that reads from `file_system`, the result of its create task.

    Where the plan found no file system worth its price the data is read from S3.
    """
    source = file_system["data_source"]
    if lustre := source.get("FileSystemDataSource"):
        return {
            "file_system_id": lustre["FileSystemId"],
            "file_system_type": lustre["FileSystemType"],
            "file_system_access_mode": lustre["FileSystemAccessMode"],
            "directory_path": lustre["DirectoryPath"],
        }
    return {"s3_data": source["S3DataSource"]["S3Uri"], "input_mode": file_system["input_mode"]}


def merged_tags(*sources: Mapping[str, str] | Sequence[Mapping[str, str]] | None) -> list[dict[str, str]]:
    """Return all tags in the API's form; of two values for one key the later source's counts."""
    tags: dict[str, str] = {}
    for source in sources:
        if isinstance(source, Mapping):
            tags |= source
        else:
            tags |= {tag["Key"]: tag["Value"] for tag in source or ()}
    return [{"Key": key, "Value": value} for key, value in tags.items()]
