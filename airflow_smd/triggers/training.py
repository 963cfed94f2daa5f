"""Waiting for a training job."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow_smd.aws.logs import JobLogs
from airflow_smd.aws.training import TrainingJobs
from airflow_smd.domain.logs import rank_and_text
from airflow_smd.domain.training import Outcome, outcome
from airflow_smd.hooks.training import TrainingHook
from airflow_smd.triggers.base import WaitTrigger


class TrainingTrigger(WaitTrigger):
    """Fires when a training job is over; until then its status and the log of rank 0 go to the task log.

    Args:
        job_name: the job.
        **wait: the arguments of :class:`WaitTrigger`.
    """

    def __init__(self, *, job_name: str, **wait: Any) -> None:
        super().__init__(**wait)
        self.job_name = job_name
        self._status = ""
        self._tokens: dict[str, str | None] = {}

    def arguments(self) -> dict[str, Any]:
        """Return what tells this trigger from another."""
        return {"job_name": self.job_name}

    @cached_property
    def jobs(self) -> TrainingJobs:
        """Return the training jobs of our connection."""
        return TrainingHook(self.aws).jobs

    @cached_property
    def logs(self) -> JobLogs:
        """Return the logs of our connection."""
        return TrainingHook(self.aws).logs

    def look(self) -> dict[str, Any] | None:
        """Return the job's name when it is over or gone, and log what is new."""
        run = self.jobs.look(self.job_name)
        if run is None:
            return {"job_name": self.job_name, "gone": True}
        if run.secondary_status != self._status:
            self.log.info("%s: %s", self.job_name, run.secondary_status)
            self._status = run.secondary_status
        self._show_log()
        over = outcome(run.status) in (Outcome.SUCCEEDED, Outcome.FAILED)
        return {"job_name": self.job_name} if over else None

    def _show_log(self) -> None:
        # the first host's launcher writes for rank 0; every other rank says the same in its own stream
        for stream in self.logs.streams(self.job_name)[:1]:
            lines, self._tokens[stream] = self.logs.read(stream, self._tokens.get(stream))
            for line in lines:
                rank, text = rank_and_text(line.text)
                if not rank:
                    self.log.info("%s | %s", line.host, text)

    def stop(self) -> None:
        """Stop the job."""
        self.jobs.stop(self.job_name)
