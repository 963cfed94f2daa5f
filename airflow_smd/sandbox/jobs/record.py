"""Jobs as AWS describes them, written to disk at every change."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from airflow_smd.sandbox.runtime import ACCOUNT_ID


class Kind(StrEnum):
    """What kind of job; the value is its part of the ARN."""

    TRAINING = "training-job"
    PROCESSING = "processing-job"

    @property
    def prefix(self) -> str:
        """Return how AWS's field names of this kind begin: `TrainingJob`."""
        return "TrainingJob" if self is Kind.TRAINING else "ProcessingJob"


class Status(StrEnum):
    """TrainingJobStatus and ProcessingJobStatus."""

    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"

    @property
    def final(self) -> bool:
        """Tell whether nothing happens any more."""
        return self not in (Status.IN_PROGRESS, Status.STOPPING)


class Secondary(StrEnum):
    """The SecondaryStatus values that the sandbox passes through."""

    STARTING = "Starting"
    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    UPLOADING = "Uploading"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    INTERRUPTED = "Interrupted"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_TIME_EXCEEDED = "MaxWaitTimeExceeded"


_FAILURE_REASON_LIMIT = 1024
_NOT_DESCRIBED = {"Tags", "SessionChainingConfig"}
"""Request fields that Describe does not return (botocore: DescribeTrainingJobResponse)."""
_TIMES = {
    "CreationTime", "LastModifiedTime", "TrainingStartTime", "TrainingEndTime", "ProcessingStartTime",
    "ProcessingEndTime", "StartTime", "EndTime", "Timestamp",
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Job:
    """One job: what was asked, and what has become of it."""

    kind: Kind
    region: str
    request: dict[str, Any]
    described: dict[str, Any] = field(default_factory=dict)
    """What Describe returns on top of the request; times in epoch seconds."""
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the job's name."""
        return str(self.request[f"{self.kind.prefix}Name"])

    @property
    def arn(self) -> str:
        """Return the job's ARN."""
        return f"arn:aws:sagemaker:{self.region}:{ACCOUNT_ID}:{self.kind}/{self.name}"

    @property
    def status(self) -> Status:
        """Return the primary status."""
        return Status(self.described[f"{self.kind.prefix}Status"])

    @property
    def secondary(self) -> Secondary:
        """Return the secondary status of a training job."""
        return Secondary(self.described["SecondaryStatus"])

    def begin(self) -> None:
        """Set what a job has the moment it is created."""
        now = time.time()
        self.described |= {f"{self.kind.prefix}Arn": self.arn, "CreationTime": now, "LastModifiedTime": now}
        self.described[f"{self.kind.prefix}Status"] = Status.IN_PROGRESS
        if self.kind is Kind.TRAINING:
            self.described["SecondaryStatusTransitions"] = []
            for kind in ("Debug", "Profiler"):
                if rules := self.request.get(f"{kind}RuleConfigurations"):
                    self.described[f"{kind}RuleEvaluationStatuses"] = [
                        _not_evaluated(rule, now) for rule in rules
                    ]

    def enter(self, secondary: Secondary, message: str) -> None:
        """Begin a secondary status, or say something new about the one that is on."""
        now = time.time()
        transitions = self.described["SecondaryStatusTransitions"]
        if transitions and transitions[-1]["Status"] == secondary and "EndTime" not in transitions[-1]:
            transitions[-1]["StatusMessage"] = message
        else:
            if transitions:
                transitions[-1].setdefault("EndTime", now)
            transitions.append({"Status": secondary, "StartTime": now, "StatusMessage": message})
        self.described |= {"SecondaryStatus": secondary, "LastModifiedTime": now}

    def finish(self, status: Status, reason: str | None = None) -> None:
        """Set the final status; of the reason, AWS keeps 1,024 characters."""
        now = time.time()
        if reason is not None:
            self.described["FailureReason"] = reason[:_FAILURE_REASON_LIMIT]
        if transitions := self.described.get("SecondaryStatusTransitions"):
            transitions[-1]["EndTime"] = now
        self.described |= {f"{self.kind.prefix}Status": status, "LastModifiedTime": now}

    def as_aws(self) -> dict[str, Any]:
        """Return what Describe answers."""
        asked = {key: value for key, value in self.request.items() if key not in _NOT_DESCRIBED}
        return {**copy.deepcopy(asked), **_with_datetimes(self.described)}


class Store:
    """All jobs of one sandbox, on disk as one JSON file each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.lock = threading.RLock()
        """Hold it while changing a job."""
        self._jobs: dict[tuple[Kind, str], Job] = {}
        for path in sorted(directory.glob("*.json")):
            raw = json.loads(path.read_text())
            job = Job(**{**raw, "kind": Kind(raw["kind"])})
            self._jobs[job.kind, job.name] = job

    def find(self, kind: Kind, name: str) -> Job | None:
        """Return the job of this name."""
        return self._jobs.get((kind, name))

    def of_kind(self, kind: Kind) -> list[Job]:
        """Return all jobs of one kind."""
        with self.lock:
            return [job for (its_kind, _), job in self._jobs.items() if its_kind is kind]

    def save(self, job: Job) -> None:
        """Write a job through to disk; a new one becomes known by it."""
        with self.lock:
            self._jobs[job.kind, job.name] = job
            path = self._path(job)
            partial = path.with_suffix(".partial")
            content = {name: getattr(job, name) for name in Job.__slots__}
            partial.write_text(json.dumps(content))
            partial.replace(path)

    def delete(self, job: Job) -> None:
        """Forget a job."""
        with self.lock:
            self._jobs.pop((job.kind, job.name), None)
            self._path(job).unlink(missing_ok=True)

    def _path(self, job: Job) -> Path:
        return self._directory / f"{job.kind}.{job.name}.json"


def _not_evaluated(rule: Mapping[str, Any], now: float) -> dict[str, Any]:
    return {
        "RuleConfigurationName": rule["RuleConfigurationName"],
        "RuleEvaluationStatus": "Stopped",
        "StatusDetails": "The sandbox does not evaluate Debugger rules.",
        "LastModifiedTime": now,
    }


def _with_datetimes(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {name: _with_datetimes(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_datetimes(item) for item in value]
    return datetime.fromtimestamp(value, UTC) if key in _TIMES else value
