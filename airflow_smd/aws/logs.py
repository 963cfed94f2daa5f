"""The log streams of a job's hosts in CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

TRAINING_LOG_GROUP = "/aws/sagemaker/TrainingJobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of one host."""

    host: str
    """`algo-1` and so on."""
    at: float
    """Unix time."""
    text: str


class JobLogs:
    """Reads what a job's hosts wrote, from where the last look ended.

    Args:
        client: a boto3 `logs` client.
        group: the log group.
    """

    def __init__(self, client: Any, group: str = TRAINING_LOG_GROUP) -> None:
        self._client = client
        self._group = group

    def streams(self, job_name: str) -> list[str]:
        """Return the names of the job's streams, one a host; [] before a host has written."""
        names: list[str] = []
        try:
            # 50 is CloudWatch's largest page; a job may have more hosts
            pages = self._client.get_paginator("describe_log_streams").paginate(
                logGroupName=self._group,
                logStreamNamePrefix=f"{job_name}/",
                PaginationConfig={"PageSize": 50},
            )
            for page in pages:
                names += [stream["logStreamName"] for stream in page["logStreams"]]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
        return sorted(names)

    def read(self, stream: str, token: str | None = None) -> tuple[list[LogLine], str | None]:
        """Return the lines after `token` and the token to go on from; none is skipped or repeated."""
        lines: list[LogLine] = []
        host = stream.rpartition("/")[2].rsplit("-", 1)[0]
        while True:
            request = {"logGroupName": self._group, "logStreamName": stream, "startFromHead": True}
            page = self._client.get_log_events(**request, **({"nextToken": token} if token else {}))
            lines += [_line(host, event) for event in page["events"]]
            if page["nextForwardToken"] == token:
                return lines, token
            token = page["nextForwardToken"]

    def tail(self, job_name: str, count: int) -> Iterator[LogLine]:
        """Yield the last `count` lines of each host."""
        for stream in self.streams(job_name):
            page = self._client.get_log_events(logGroupName=self._group, logStreamName=stream, limit=count)
            host = stream.rpartition("/")[2].rsplit("-", 1)[0]
            yield from (_line(host, event) for event in page["events"])


def _line(host: str, event: Mapping[str, Any]) -> LogLine:
    return LogLine(host=host, at=event["timestamp"] / 1000, text=event["message"].rstrip("\n"))
