"""One thread that watches all training jobs of a connection which this process waits for."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol
from weakref import WeakValueDictionary

from airflow_smd.aws.logs import JobLogs
from airflow_smd.aws.training import MOST_PAGES, ChangeList, TrainingJobs
from airflow_smd.domain.training import TrainingRun
from airflow_smd.errors import UnexpectedAnswer
from airflow_smd.hooks.connection import AwsConnection
from airflow_smd.hooks.training import TrainingHook
from airflow_smd.triggers.base import LONGEST_PAUSE_SECONDS, in_thread

LIST_FROM = 5
"""From how many jobs on the account's changes are listed; fewer are described. AWS limits listing for the
whole account, and every worker that waits would take its share."""
LISTS_A_POLL = 3
"""How often changes are listed while `poll_seconds` pass: one list costs the same for any number of jobs."""
LIST_SECONDS = 1.0
"""Least pause between two ListTrainingJobs: half of what AWS allows (two a second, not adjustable)."""
LOOK_SECONDS = 0.2
"""Least pause between two DescribeTrainingJob; AWS publishes no limit."""
LOG_SECONDS = 1.0
"""Least pause between two readings of a log: a fifth of the FilterLogEvents that AWS allows an account."""
SKEW_SECONDS = 300.0
"""How far before our own clock the first listing begins; AWS refuses calls of clocks that are further off."""
RECONCILE_SECONDS = 3600.0
"""How often a job is described although listing works, for what no list shows: a job that was deleted."""
DOUBTS = 3
"""After so many failures in a row jobs are described instead of listed, and clients are made anew."""
CALLS: Mapping[str, Any] = {
    "retries": {"total_max_attempts": 1},
    "connect_timeout": 10,
    "read_timeout": 30,
}
"""botocore settings: we pause after a failure ourselves, and one slow call delays the look at all jobs."""
log = logging.getLogger(__name__)


class Watched(Protocol):
    """What the poller asks of a trigger, in the poller's thread."""

    job_name: str
    poll_seconds: float

    @property
    def log(self) -> Any:
        """Return the logger of the task."""

    @property
    def reads_log(self) -> bool:
        """Tell whether the job writes a log that is to be shown."""

    def look(self) -> dict[str, Any] | None:
        """Describe the job; return the event's payload if the wait is over."""

    def saw(self, run: TrainingRun) -> dict[str, Any] | None:
        """Take notice of the job's status; return the event's payload if the wait is over."""

    def show_log(self) -> bool:
        """Show the next page of the log; return whether there is more."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Waiter:
    trigger: Watched
    future: asyncio.Future[dict[str, Any]]
    context: Context
    """That of the trigger's own coroutine, by which Airflow finds the task log."""
    pause: float
    first_look: float
    looked_at: float
    known: bool = False
    """Whether its last description succeeded; from then on listing tells of changes."""
    log_due: float = -math.inf


@dataclass(slots=True)
class _Lane:
    """One kind of call: how often it may be made, and how long it rests after failures."""

    what: str
    interval: float
    due: float = -math.inf
    failures: int = 0

    def made(self, now: float) -> None:
        self.failures = 0
        self.due = now + self.interval

    def failed(self, now: float) -> None:
        self.failures += 1
        self.due = now + _about(min(LONGEST_PAUSE_SECONDS, self.interval * 2.0 ** min(self.failures, 16)))


class Poller:
    """Watches the jobs of one connection as long as somebody waits for one.

    Many jobs are watched by listing what has changed in the account, whatever their number; each is described
    once in the beginning and then rarely. Few jobs, and all while listing does not work, are described in
    turn. Failures are answered with longer pauses, never with an end of the wait.

    Args:
        hook: where the calls go; one client of each kind serves all jobs.
    """

    _shared: ClassVar[WeakValueDictionary[str, Poller]] = WeakValueDictionary()
    _sharing: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, hook: TrainingHook) -> None:
        self._hook = hook
        self._clients: dict[str, Any] = {}
        self._waiters: set[_Waiter] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._sleeps_until = -math.inf
        self._polling: asyncio.Future[None] | None = None
        self._listing: ChangeList | None = None
        self._steps = _Lane("poll", LIST_SECONDS)
        self._lists = _Lane("list training jobs", LIST_SECONDS)
        self._looks = _Lane("look", LOOK_SECONDS)
        self._readings = _Lane("read the log", LOG_SECONDS)

    @classmethod
    def of(cls, connection: AwsConnection) -> Poller:
        """Return the poller that all triggers of this connection share."""
        key = json.dumps(connection.serialize(), sort_keys=True, default=str)
        with cls._sharing:
            poller = cls._shared.get(key)
            if poller is None:
                poller = cls._shared[key] = cls(TrainingHook(connection, CALLS))
            return poller

    @property
    def jobs(self) -> TrainingJobs:
        """Return the training jobs."""
        if "jobs" not in self._clients:
            self._clients["jobs"] = self._hook.jobs
        jobs: TrainingJobs = self._clients["jobs"]
        return jobs

    @property
    def logs(self) -> JobLogs:
        """Return the hosts' logs."""
        if "logs" not in self._clients:
            self._clients["logs"] = self._hook.logs
        logs: JobLogs = self._clients["logs"]
        return logs

    async def end(self, trigger: Watched) -> dict[str, Any]:
        """Return the payload of `trigger` when its job is over; the first look comes after a pause.

        The thread that looks starts with the first waiter and ends with the last.
        """
        waiter = self.add(trigger, time.monotonic())
        try:
            with self._lock:
                if self._polling is None or self._polling.done():
                    own = ThreadPoolExecutor(1, "airflow-smd-poller")
                    self._polling = asyncio.ensure_future(in_thread(self._poll, own))
                    self._polling.add_done_callback(lambda _: own.shutdown(wait=False))
            return await waiter.future
        finally:
            self._remove(waiter)

    def add(self, trigger: Watched, now: float) -> _Waiter:
        """Watch a job for the event loop that runs here."""
        pause = _about(trigger.poll_seconds)
        waiter = _Waiter(
            trigger=trigger,
            future=asyncio.get_running_loop().create_future(),
            context=copy_context(),
            pause=pause,
            first_look=now + pause,
            looked_at=now,
        )
        with self._lock:
            self._waiters.add(waiter)
            if waiter.first_look < self._sleeps_until:
                self._wake.set()
        return waiter

    def _remove(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiters.discard(waiter)
            if not self._waiters:
                self._wake.set()

    def _poll(self) -> None:
        while True:
            self._wake.clear()
            now = time.monotonic()
            try:
                until = now + self.step(now)
                self._steps.made(now)
            except Exception:  # all waits hang on this thread
                log.exception("Cannot poll, trying again")
                self._steps.failed(now)
                until = self._steps.due
            with self._lock:
                if not self._waiters:
                    self._polling = None
                    return
                self._sleeps_until = until
            self._wake.wait(min(max(0.0, until - time.monotonic()), LONGEST_PAUSE_SECONDS))

    def step(self, now: float) -> float:
        """Make the calls that are due at `now`, at most one of each kind; return the seconds to the next."""
        return min(step(self._waiting(), now) for step in (self._list, self._look, self._read)) - now

    def _waiting(self) -> list[_Waiter]:
        with self._lock:
            return list(self._waiters)

    def _list(self, waiters: Sequence[_Waiter], now: float) -> float:
        if len(waiters) < LIST_FROM:
            self._listing = None
            return math.inf
        if now >= self._lists.due:
            if self._listing is None:  # what changed since the last look at any of them
                longest = max(waiter.pause for waiter in waiters)
                self._listing = ChangeList(time.time() - SKEW_SECONDS - longest)
            doubts = self._lists.failures
            read = partial(self._read_list, self._listing, waiters, now)
            listed = self._attempt(self._lists, now, read, log.warning)
            if listed and self._listing.token:
                self._lists.failures = doubts  # only a list that ends tells that listing works
            elif listed:
                self._lists.due = now + min(waiter.pause for waiter in waiters) / LISTS_A_POLL
        return self._lists.due

    def _read_list(self, listing: ChangeList, waiters: Sequence[_Waiter], now: float) -> None:
        runs = {run.job_name: run for run in listing.read(self.jobs)}
        for waiter in waiters:
            if waiter.trigger.job_name in runs and now >= waiter.first_look:
                self._tell(waiter, partial(waiter.trigger.saw, runs[waiter.trigger.job_name]))
        if listing.endless:
            listing.move_on()
            for waiter in waiters:  # what was not listed must be described
                waiter.known = False
            raise UnexpectedAnswer(f"ListTrainingJobs did not end after {MOST_PAGES} pages")

    def _look(self, waiters: Sequence[_Waiter], now: float) -> float:
        if not waiters:
            return math.inf
        listed = len(waiters) >= LIST_FROM and self._lists.failures < DOUBTS
        dues = [
            waiter.looked_at + (RECONCILE_SECONDS if listed and waiter.known else waiter.pause)
            for waiter in waiters
        ]
        due = max(self._looks.due, min(dues))
        if now < due:
            return due
        waiter = waiters[dues.index(min(dues))]
        waiter.looked_at = now
        look, say = partial(self._tell, waiter, waiter.trigger.look), waiter.trigger.log.warning
        waiter.known = self._attempt(self._looks, now, look, partial(waiter.context.run, say))
        return self._looks.due

    def _read(self, waiters: Sequence[_Waiter], now: float) -> float:
        reading = [waiter for waiter in waiters if waiter.trigger.reads_log]
        if not reading:
            return math.inf
        waiter = min(reading, key=lambda waiter: waiter.log_due)
        due = max(self._readings.due, waiter.log_due)
        if now < due:
            return due

        def read() -> None:
            more = waiter.context.run(waiter.trigger.show_log)
            waiter.log_due = now if more else now + waiter.pause

        waiter.log_due = now + waiter.pause
        self._attempt(self._readings, now, read, partial(waiter.context.run, waiter.trigger.log.warning))
        return self._readings.due

    def _attempt(
        self, lane: _Lane, now: float, call: Callable[[], None], say: Callable[[str, str, Exception], None]
    ) -> bool:
        try:
            call()
        except Exception as error:
            lane.failed(now)
            if lane.failures % DOUBTS == 0:  # credentials may have been renewed
                self._clients.clear()
            say("Cannot %s (%s), trying again", lane.what, error)
            return False
        lane.made(now)
        return True

    def _tell(self, waiter: _Waiter, notice: Callable[[], dict[str, Any] | None]) -> None:
        payload = waiter.context.run(notice)
        if payload is not None:
            self._remove(waiter)
            with suppress(RuntimeError):  # the waiter's event loop has ended
                waiter.future.get_loop().call_soon_threadsafe(_settle, waiter.future, payload)


def _settle(future: asyncio.Future[dict[str, Any]], payload: dict[str, Any]) -> None:
    if not future.done():
        future.set_result(payload)


def _about(seconds: float) -> float:
    # jitter, so that processes started together do not call together
    return seconds * random.uniform(0.9, 1.1)  # noqa: S311
