"""A job's output on its way to CloudWatch: one log stream per host, metrics found by regular expressions."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow_smd.sandbox.jobs.cloud import Cloud

_EVENT_LIMIT = 256 * 1024 - 26
"""Bytes of one log event (CloudWatch Logs quotas)."""
_BATCH_LIMIT = 10_000
METRICS_NAMESPACE = "/aws/sagemaker/TrainingJobs"


class JobLog:
    """Collects lines of all hosts; `flush` sends them on."""

    def __init__(
        self, cloud: Cloud, group: str, job_name: str, metric_definitions: Sequence[Mapping[str, str]] = ()
    ) -> None:
        self._cloud = cloud
        self._group = group
        self._job_name = job_name
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._streams: dict[str, str] = {}
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._last_milliseconds: dict[str, int] = {}
        self._metrics = [(item["Name"], _compile(item["Regex"])) for item in metric_definitions]
        self._points: list[tuple[str, float, float, Mapping[str, str], str]] = []
        self.final_metrics: dict[str, tuple[float, float]] = {}
        """Metric name -> last value and its epoch seconds."""

    def open(self, hosts: Sequence[str]) -> None:
        """Create one stream per host, named as SageMaker does: JOB/algo-1-EPOCH."""
        for host in hosts:
            self._streams[host] = f"{self._job_name}/{host}-{int(time.time())}"
            self._cloud.open_log(self._group, self._streams[host])

    def line(self, host: str, text: str) -> None:
        """Take one line that a host printed, or that the sandbox says in its name."""
        now = time.time()
        with self._lock:
            milliseconds = max(int(now * 1000), self._last_milliseconds.get(host, 0))
            self._last_milliseconds[host] = milliseconds
            self._waiting.setdefault(host, []).append(
                {"timestamp": milliseconds, "message": text[:_EVENT_LIMIT] or " "}
            )
            for name, pattern in self._metrics:
                if (found := _value(pattern, text)) is not None:
                    self.final_metrics[name] = (found, now)
                    self._points.append((name, found, now, {"TrainingJobName": self._job_name}, "None"))

    def flush(self) -> None:
        """Send what has come in since the last time, in order."""
        with self._flushing:
            with self._lock:
                waiting, self._waiting = self._waiting, {}
                points, self._points = self._points, []
            for host, events in waiting.items():
                for start in range(0, len(events), _BATCH_LIMIT):
                    self._cloud.put_logs(
                        self._group, self._streams[host], events[start : start + _BATCH_LIMIT]
                    )
            if points:
                self._cloud.put_metrics(METRICS_NAMESPACE, points)


def _compile(pattern: str) -> re.Pattern[str] | None:
    with suppress(re.error):
        return re.compile(pattern)
    return None


def _value(pattern: re.Pattern[str] | None, line: str) -> float | None:
    found = pattern.search(line) if pattern else None
    if found is None or not found.groups():
        return None
    with suppress(TypeError, ValueError):
        value = float(found.group(1))
        return value if value == value and abs(value) != float("inf") else None
    return None
