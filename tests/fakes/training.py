"""Training jobs, logs and code in memory; they refuse and answer as SageMaker does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_smd.aws.training import Changes
from airflow_smd.domain.identity import TaskIdentity
from airflow_smd.domain.logs import LogLine
from airflow_smd.domain.training import TrainingRun, TrainingStatus
from airflow_smd.errors import NameTaken


class FakeTrainingJobs:
    region = "us-east-1"

    def __init__(self) -> None:
        self.runs: dict[str, TrainingRun] = {}
        self.requests: dict[str, Mapping[str, Any]] = {}
        self.stopped: list[str] = []
        self.calls: list[str] = []
        """`Describe` and `List`, in order."""
        self.errors: dict[str, Exception] = {}
        """What one of them answers as long as it stands here."""
        self.modified: dict[str, float] = {}
        """Unix time of a job's last change; what is not here has not changed for long."""
        self.page = 100

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.errors:
            raise self.errors[name]

    def launch(self, request: Mapping[str, Any]) -> None:
        name = request["TrainingJobName"]
        if name in self.runs:
            raise NameTaken(name)
        self.requests[name] = request
        self.runs[name] = TrainingRun(
            job_name=name,
            job_arn=f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}",
            status=TrainingStatus.IN_PROGRESS,
            secondary_status="Starting",
        )

    def look(self, job_name: str) -> TrainingRun | None:
        self._called("Describe")
        return self.runs.get(job_name)

    def changed(self, after: float, token: str | None = None) -> Changes:
        self._called("List")
        names = [name for name, at in self.modified.items() if at > after and name in self.runs]
        start = int(token or 0)
        page = names[start : start + self.page]
        more = str(start + self.page) if len(names) > start + self.page else None
        newest = max((self.modified[name] for name in page), default=after)
        return Changes(runs=[self.runs[name] for name in page], newest=newest, token=more)

    def attempts(self, identity: TaskIdentity) -> list[TrainingRun]:
        found: list[TrainingRun] = []
        while run := self.look(identity.attempt_name(len(found) + 1)):
            found.append(run)
        return found

    def owner(self, job_arn: str) -> str | None:
        tags = self.requests[job_arn.rpartition("/")[2]].get("Tags", [])
        return next((tag["Value"] for tag in tags if tag["Key"] == "airflow-smd:name"), None)

    def stop(self, job_name: str) -> None:
        self.stopped.append(job_name)
        run = self.runs.get(job_name)
        if run and run.status is TrainingStatus.IN_PROGRESS:
            self.runs[job_name] = replace(run, status=TrainingStatus.STOPPING, secondary_status="Stopping")

    def end(self, job_name: str, status: TrainingStatus, **changes: Any) -> None:
        secondary = changes.pop("secondary_status", str(status))
        self.runs[job_name] = replace(
            self.runs[job_name], status=status, secondary_status=secondary, **changes
        )


class FakeJobLogs:
    def __init__(self, lines: Mapping[str, list[str]] | None = None) -> None:
        self.lines = dict(lines or {})
        self.at = 0.0
        """Unix time of each host's first line; the next ones follow a second apart."""
        self.page_lines = 10_000

    def streams(self, job_name: str) -> list[str]:
        return sorted(f"{job_name}/{host}-1" for host in self.lines)

    def _lines(self, stream: str) -> list[LogLine]:
        host = stream.rpartition("/")[2].rsplit("-", 1)[0]
        return [LogLine(host=host, at=self.at + at, text=text) for at, text in enumerate(self.lines[host])]

    def page(
        self, streams: Sequence[str], since: float, token: str | None = None
    ) -> tuple[list[LogLine], str | None]:
        lines = [
            replace(line, id=f"{stream}:{number}")
            for stream in streams
            for number, line in enumerate(self._lines(stream))
            if line.at >= since
        ]
        start = int(token or 0)
        end = start + self.page_lines
        return lines[start:end], str(end) if end < len(lines) else None

    def tail(self, job_name: str, count: int) -> Iterator[LogLine]:
        for stream in self.streams(job_name):
            yield from self._lines(stream)[-count:]


class FakeSourceStore:
    def __init__(self) -> None:
        self.uploads: list[Path] = []

    def put(self, source_dir: Path) -> str:
        self.uploads.append(source_dir)
        return "s3://bucket/source/0/sourcedir.tar.gz"


class FakeTrainingHook:
    def __init__(self, jobs: FakeTrainingJobs, logs: FakeJobLogs) -> None:
        self.jobs = jobs
        self.logs = logs
