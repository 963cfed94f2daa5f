"""Waiting for a processing job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from airflow_smd.aws.logs import JobLogs, LogReader
from airflow_smd.aws.processing import ProcessingJobs
from airflow_smd.domain.processing import outcome
from airflow_smd.domain.training import Outcome
from airflow_smd.hooks.processing import ProcessingHook
from airflow_smd.triggers.base import SHOWN_AGAIN_SECONDS, WaitTrigger


class ProcessingTrigger(WaitTrigger):
    """Fires when a processing job is over or gone; its status and progress go to the task log.

    Args:
        job_name: the job.
        carry: small JSON that the event gives back: what was planned when the job was launched.
        **wait: the arguments of :class:`WaitTrigger`.
    """

    def __init__(self, *, job_name: str, carry: Mapping[str, Any] | None = None, **wait: Any) -> None:
        super().__init__(**wait)
        self.job_name = job_name
        self.carry = dict(carry or {})
        self._status = ""
        self._shown_from = time.time() - SHOWN_AGAIN_SECONDS
        self._readable = True

    def arguments(self) -> dict[str, Any]:
        """Return what tells this trigger from another."""
        return {"job_name": self.job_name, "carry": self.carry}

    @cached_property
    def jobs(self) -> ProcessingJobs:
        """Return the processing jobs of our connection."""
        return ProcessingHook(self.aws).jobs

    @cached_property
    def logs(self) -> JobLogs:
        """Return the logs of our connection."""
        return ProcessingHook(self.aws).logs

    @cached_property
    def reader(self) -> LogReader:
        """Return the reader of the job's log."""
        return LogReader(lambda: self.logs, self.job_name, {"since": self._shown_from})

    def look(self) -> dict[str, Any] | None:
        """Return the job's name when it is over or gone, and log what is new."""
        run = self.jobs.look(self.job_name)
        event = {"job_name": self.job_name, **self.carry}
        if run is None:
            return event
        if run.status != self._status:
            self.log.info("%s: %s", self.job_name, run.status)
            self._status = str(run.status)
        self._show_progress(run.instance_count)
        return event if outcome(run.status) in (Outcome.SUCCEEDED, Outcome.FAILED) else None

    def _show_progress(self, hosts: int) -> None:
        if not self._readable:
            return
        try:
            for text in self.reader.read(hosts):
                self.log.info("%s", text)
        except Exception as error:
            # a role that may not read logs must not keep us from seeing that the job is over
            self._readable = False
            self.log.warning("Cannot read the job's log (%s); going on without it", error)

    def stop(self) -> None:
        """Stop the job."""
        self.jobs.stop(self.job_name)
