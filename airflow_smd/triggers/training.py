"""Waiting for a training job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from airflow.triggers.base import TriggerEvent
from botocore.exceptions import ClientError

from airflow_smd.aws.jobs import error_code
from airflow_smd.aws.logs import TRAINING_LOG_GROUP, LogReader
from airflow_smd.aws.training import TrainingJobs
from airflow_smd.domain.training import Outcome, TrainingRun, outcome
from airflow_smd.hooks.training import TrainingHook
from airflow_smd.triggers.base import SHOWN_AGAIN_SECONDS, WaitTrigger
from airflow_smd.triggers.poller import Poller

NOT_ALLOWED = ("AccessDeniedException", "AccessDenied")


class TrainingTrigger(WaitTrigger):
    """Fires when a training job is over; until then its status and its hosts' log go to the task log.

    All triggers of a connection share one :class:`Poller`. Nobody remembers for a trigger that moves to
    another triggerer what it has shown: it goes on a few minutes before, and says so. The event carries the
    log's cursor, with which the worker shows the rest.

    Args:
        job_name: the job.
        **wait: the arguments of :class:`WaitTrigger`.
    """

    def __init__(self, *, job_name: str, **wait: Any) -> None:
        super().__init__(**wait)
        self.job_name = job_name
        self._status = ""
        self._hosts = 1
        self._started_at: float | None = None
        self._shown_from = time.time() - SHOWN_AGAIN_SECONDS
        self._may_read = True

    def arguments(self) -> dict[str, Any]:
        """Return what tells this trigger from another."""
        return {"job_name": self.job_name}

    @cached_property
    def jobs(self) -> TrainingJobs:
        """Return the training jobs of our connection for a call that must succeed: botocore retries it."""
        return TrainingHook(self.aws).jobs

    @cached_property
    def poller(self) -> Poller:
        """Return the poller of our connection."""
        return Poller.of(self.aws)

    @cached_property
    def reader(self) -> LogReader:
        """Return the reader of the job's log; it begins where an earlier triggerer may have stopped."""
        if self._started_at is not None and self._started_at < self._shown_from:
            begin = datetime.fromtimestamp(self._shown_from, UTC).isoformat(timespec="seconds")
            place = f"{TRAINING_LOG_GROUP}/{self.job_name}"
            self.log.info("The log goes on from %s; what is older is above or in %s", begin, place)
        return LogReader(lambda: self.poller.logs, self.job_name, {"since": self._shown_from})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event, as :class:`WaitTrigger` does."""
        left = None if self.deadline is None else max(0.0, self.deadline - time.time())
        try:
            payload = await asyncio.wait_for(self.poller.end(self), left)
        except TimeoutError:
            async for event in super().run():  # looks once more before it says that the time is over
                yield event
        else:
            yield TriggerEvent(payload)

    def look(self) -> dict[str, Any] | None:
        """Return the event's payload when the job is over or gone; note what is new."""
        run = self.poller.jobs.look(self.job_name)
        if run is None:
            return {"job_name": self.job_name, "gone": True}
        self._hosts, self._started_at = run.instance_count, run.started_at
        if run.ended_at is not None:  # while no triggerer looked, perhaps
            self._shown_from = min(self._shown_from, run.ended_at - SHOWN_AGAIN_SECONDS)
        return self.saw(run)

    def saw(self, run: TrainingRun) -> dict[str, Any] | None:
        """Return the event's payload when the job is over; log a status that is new."""
        if run.secondary_status != self._status:
            self.log.info("%s: %s", self.job_name, run.secondary_status)
            self._status = run.secondary_status
        if outcome(run.status) not in (Outcome.SUCCEEDED, Outcome.FAILED):
            return None
        return {"job_name": self.job_name, "log": self.reader.cursor}

    @property
    def reads_log(self) -> bool:
        """Tell whether the hosts may be writing."""
        return self._may_read and self._status == "Training"

    def show_log(self) -> bool:
        """Show the next page of the hosts' log; return whether there is more."""
        try:
            for text in self.reader.read(self._hosts):
                self.log.info("%s", text)
        except ClientError as error:
            if error_code(error) not in NOT_ALLOWED:
                raise
            self._may_read = False
            self.log.warning("The job's log cannot be shown: %s", error)
        return self._may_read and self.reader.more

    def stop(self) -> None:
        """Stop the job."""
        self.jobs.stop(self.job_name)
