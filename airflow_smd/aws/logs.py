"""The log streams of a job's hosts in CloudWatch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from airflow_smd.domain.logs import LogLine, LogNews

TRAINING_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
STREAMS_A_CALL = 100
"""FilterLogEvents takes no more names; of jobs with more hosts the others count for the first error only."""


class JobLogs:
    """What a job's hosts wrote.

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

    def page(
        self, streams: Sequence[str], since: float, token: str | None = None
    ) -> tuple[list[LogLine], str | None]:
        """Return lines of all these streams from `since` (Unix time) on, and the next page's token if any.

        One FilterLogEvents, whatever the number of hosts; AWS allows five a second.
        """
        page = self._client.filter_log_events(
            logGroupName=self._group,
            logStreamNames=streams[:STREAMS_A_CALL],
            startTime=round(since * 1000),
            **({"nextToken": token} if token else {}),
        )
        lines = [_line(_host(event["logStreamName"]), event) for event in page["events"]]
        return lines, page.get("nextToken")

    def tail(self, job_name: str, count: int) -> Iterator[LogLine]:
        """Yield the last `count` lines of each host."""
        for stream in self.streams(job_name):
            page = self._client.get_log_events(logGroupName=self._group, logStreamName=stream, limit=count)
            yield from (_line(_host(stream), event) for event in page["events"])


class LogReader:
    """Reads all hosts of one job from where the last reading ended, one page a call.

    Args:
        logs: gives the logs of the account, when they are needed.
        job_name: the job.
        cursor: the arguments of :class:`LogNews`.
    """

    def __init__(self, logs: Callable[[], JobLogs], job_name: str, cursor: Mapping[str, Any]) -> None:
        self._logs = logs
        self._job_name = job_name
        self._news = LogNews(**cursor)
        self._since = self._news.since
        self._streams: list[str] = []
        self._token: str | None = None

    @property
    def cursor(self) -> dict[str, Any]:
        """Return the arguments, as JSON, with which another reader goes on."""
        return self._news.cursor

    @property
    def more(self) -> bool:
        """Tell whether the page was not the last."""
        return self._token is not None

    def read(self, hosts: int) -> list[str]:
        """Return what to show of the next page.

        Args:
            hosts: how many streams there will be; they are looked for until all are there.
        """
        if len(self._streams) < max(1, hosts) and not self.more:
            self._streams = self._logs().streams(self._job_name)
        if not self._streams:
            return []
        lines, self._token = self._logs().page(self._streams, self._since, self._token)
        shown = self._news.shown(lines)
        if not self.more:
            self._since = self._news.since
        return shown


def _host(stream: str) -> str:
    return stream.rpartition("/")[2].rsplit("-", 1)[0]


def _line(host: str, event: Mapping[str, Any]) -> LogLine:
    text = event["message"].rstrip("\n")
    return LogLine(host=host, at=event["timestamp"] / 1000, text=text, id=event.get("eventId", ""))
