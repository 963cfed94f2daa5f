"""A processing job: where it stands, how it ended, and what a task does next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from airflow_smd.domain.identity import TaskIdentity
from airflow_smd.domain.training import Follow, Launch, Outcome, WaitOut
from airflow_smd.errors import PreprocessFailed, PreprocessStopped, PreprocessTransient


class ProcessingStatus(StrEnum):
    """`ProcessingJobStatus` of DescribeProcessingJob."""

    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


def outcome(status: ProcessingStatus) -> Outcome:
    """Return what `status` means; a job that was stopped did not succeed, whoever stopped it."""
    match status:
        case ProcessingStatus.IN_PROGRESS:
            return Outcome.RUNNING
        case ProcessingStatus.STOPPING:
            return Outcome.ENDING
        case ProcessingStatus.COMPLETED:
            return Outcome.SUCCEEDED
        case ProcessingStatus.FAILED | ProcessingStatus.STOPPED:
            return Outcome.FAILED
        case _:
            assert_never(status)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingRun:
    """One processing job as AWS describes it."""

    job_name: str
    status: ProcessingStatus
    job_arn: str = ""
    failure_reason: str = ""
    exit_message: str = ""
    """What the container said about its end (`/opt/ml/output/message`), at most 1 KB over all hosts."""
    output_uri: str = ""
    instance_type: str = ""
    instance_count: int = 0
    created_at: float | None = None
    """Unix time."""
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def seconds(self) -> float | None:
        """Return how long the instances worked, None if they did not start or end."""
        if self.started_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.started_at


def next_step(
    identity: TaskIdentity, earlier: Sequence[ProcessingRun], output_uri: str
) -> Follow | WaitOut | Launch:
    """Follow the newest job of this generation unless it failed or made other data; then start another.

    A job whose output goes elsewhere was planned from data that have changed since: while it runs it is to be
    stopped and waited out, and when it is over its result is not ours.
    """
    if earlier:
        newest = earlier[-1]
        same = newest.output_uri.rstrip("/") == output_uri.rstrip("/")
        match outcome(newest.status):
            case Outcome.RUNNING | Outcome.SUCCEEDED if same:
                return Follow(newest.job_name)
            case Outcome.RUNNING | Outcome.ENDING:
                return WaitOut(newest.job_name)
            case _:
                pass
    return Launch(identity.attempt_name(len(earlier) + 1))


_TRANSIENT = ("CapacityError", "InternalServerError", "ResourceLimitExceeded")
"""How a FailureReason begins when another try may end well."""


def failure(run: ProcessingRun) -> PreprocessFailed:
    """Return the error for a job that did not succeed."""
    if run.status is ProcessingStatus.STOPPED:
        return PreprocessStopped(run.job_name, run.failure_reason, run.exit_message)
    if run.failure_reason.startswith(_TRANSIENT):
        return PreprocessTransient(run.job_name, run.failure_reason, run.exit_message)
    return PreprocessFailed(run.job_name, run.failure_reason, run.exit_message)
