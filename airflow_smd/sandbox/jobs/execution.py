"""What training and processing jobs have in common while they run: hosts, log, metrics, ways to end."""

from __future__ import annotations

import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from airflow_smd.sandbox.faults import FaultKind
from airflow_smd.sandbox.jobs import cloud
from airflow_smd.sandbox.jobs.containers import Containers, JobFailed
from airflow_smd.sandbox.jobs.hosts import HostPlan, Isolation, Session
from airflow_smd.sandbox.jobs.logs import JobLog
from airflow_smd.sandbox.jobs.machines import Machine
from airflow_smd.sandbox.jobs.measure import Meter
from airflow_smd.sandbox.jobs.record import Job, Store
from airflow_smd.sandbox.runtime import Runtime

INTERNAL_ERROR = "InternalServerError: We encountered an internal error.  Please try again."
CAPACITY_ERROR = (
    "CapacityError: Unable to provision requested ML compute capacity."
    " Please retry using a different ML instance type."
)
_PULSE_SECONDS = 1.0
_METRICS_EVERY = 5
"""Pulses between two looks at the hosts; SageMaker looks once a minute."""


class End(StrEnum):
    """Why the hosts of a job are no more."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    MAX_RUNTIME = "max runtime"
    MAX_WAIT = "max wait"
    INTERRUPTED = "interrupted"
    FAULT = "fault"
    ABANDONED = "abandoned"
    """The sandbox goes down; the job's state is left for the next start to judge."""


class JobAbandoned(Exception):
    """The sandbox goes down in the middle of the job."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of the hosts ended; host and code of the first that failed."""

    end: End
    host: str = ""
    code: int = 0


@dataclass(slots=True)
class Work:
    """One job being carried out, in a thread of its own."""

    runtime: Runtime
    store: Store
    cloud: cloud.Cloud
    isolation: Isolation
    job: Job
    machines: Sequence[Machine]
    log: JobLog
    metrics_namespace: str
    stop_requested: threading.Event = field(default_factory=threading.Event)
    abandoned: threading.Event = field(default_factory=threading.Event)
    changed: threading.Event = field(default_factory=threading.Event)
    """Wakes the job's thread: a host ended, a stop was asked for, the sandbox goes down."""
    directory: Path = field(init=False)
    containers: Containers = field(init=False)
    _meter: Meter = field(default_factory=Meter)
    _session: Session | None = None

    def __post_init__(self) -> None:
        self.directory = (
            self.runtime.directory("jobs") / "work" / f"{self.job.name[:40]}-{secrets.token_hex(3)}"
        )
        self.containers = Containers(self.runtime, self.isolation, self.directory)

    def update(self, change: Callable[[Job], None]) -> None:
        """Change the job and write it to disk."""
        with self.store.lock:
            change(self.job)
            self.store.save(self.job)

    def stop(self) -> None:
        """Ask the job to stop, as Stop…Job does."""
        self.stop_requested.set()
        self.changed.set()

    def abandon(self) -> None:
        """End the hosts at once and leave the job's state as it is."""
        self.abandoned.set()
        self.changed.set()

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until someone asks the job to stop."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self._asked():
            self.changed.wait(left)
            self.changed.clear()
        if self.abandoned.is_set():
            raise JobAbandoned

    def provision(self) -> None:
        """Take as long, or fail, as the faults for this job say."""
        if slow := self.runtime.faults.take(FaultKind.SLOW_CREATE, **self._fault_attributes()):
            self.pause(float(slow.options["seconds"]))
        if self.runtime.faults.take(FaultKind.CAPACITY, **self._fault_attributes()):
            raise JobFailed(CAPACITY_ERROR)

    def fault(self, kind: FaultKind) -> Mapping[str, Any] | None:
        """Return the options of a fault that is armed for this job."""
        fault = self.runtime.faults.take(kind, **self._fault_attributes())
        return fault.options if fault else None

    def _fault_attributes(self) -> dict[str, Any]:
        operation = f"Create{self.job.kind.prefix}"
        return {"service": "sagemaker", "operation": operation, **self.job.request}

    def _asked(self) -> bool:
        return self.stop_requested.is_set() or self.abandoned.is_set()

    def run_hosts(
        self,
        plans: Sequence[HostPlan],
        limits: Mapping[End, float],
        note: str,
        each_pulse: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Run the hosts to their end; `limits` are monotonic times at which they are ended for a reason."""
        self.log.open([plan.machine.name for plan in plans])
        self.log.line(plans[0].machine.name, f"[sandbox] {note}")
        with self._new_session() as session:
            self._session = session
            session.start(plans)
            with self._pulse(each_pulse):
                outcome = self._follow(session, limits)
        self._session = None
        self.log.flush()
        if outcome.end is End.ABANDONED:
            raise JobAbandoned
        if session.broken:
            raise JobFailed(f"{INTERNAL_ERROR} [sandbox: {session.broken.strip().splitlines()[-1]}]")
        return outcome

    def _new_session(self) -> Session:
        network = self.job.request.get("NetworkConfig") or self.job.request
        return Session(
            self.runtime,
            self.isolation,
            self.directory,
            self.log.line,
            reaches_aws=not network.get("EnableNetworkIsolation"),
            changed=self.changed,
        )

    def _follow(self, session: Session, limits: Mapping[End, float]) -> Outcome:
        while True:
            if failed := next(((host, code) for host, code in session.codes.items() if code != 0), None):
                return Outcome(End.FAILED, *failed)
            if len(session.codes) == len(self.machines):
                return Outcome(End.DONE)
            if session.broken:
                return Outcome(End.FAILED)
            if end := self._reason_to_end(limits):
                if end not in (End.FAULT, End.ABANDONED):
                    self._terminate(session)
                return Outcome(end)
            self.changed.wait(max(0.01, min(limits.values()) - time.monotonic()))
            self.changed.clear()

    def _reason_to_end(self, limits: Mapping[End, float]) -> End | None:
        if self.abandoned.is_set():
            return End.ABANDONED
        if self.stop_requested.is_set():
            return End.STOPPED
        now = time.monotonic()
        return next((end for end, moment in limits.items() if now >= moment), None)

    def _terminate(self, session: Session) -> None:
        """SIGTERM to the first process of each host, then wait; leaving the session kills what is left."""
        session.signal(signal.SIGTERM)
        deadline = time.monotonic() + self.runtime.settings.stop_grace_seconds
        while time.monotonic() < deadline and not self.abandoned.is_set():
            if session.broken or len(session.codes) == len(self.machines):
                return
            self.changed.wait(deadline - time.monotonic())
            self.changed.clear()

    @contextmanager
    def _pulse(self, each_pulse: Callable[[], None]) -> Iterator[None]:
        over = threading.Event()

        def beat() -> None:
            count = 0
            while not over.wait(_PULSE_SECONDS):
                self.log.flush()
                count += 1
                if count % _METRICS_EVERY == 1:
                    self._measure()
                each_pulse()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(timeout=10)

    def _measure(self) -> None:
        session = self._session
        if session is None or not Path("/proc/self/stat").exists():
            return
        disks = {machine.name: self.containers.layout(machine.name).ml for machine in self.machines}
        now = time.time()
        points = [
            (name, value, now, {"Host": f"{self.job.name}/{host}"}, "Percent")
            for host, metrics in self._meter.look(dict(session.pids), disks).items()
            for name, value in metrics.items()
        ]
        if points:
            self.cloud.put_metrics(self.metrics_namespace, points)

    def carry_out(self, steps: Callable[[], None], fail: Callable[[str], None]) -> None:
        """Run the steps of a job to whatever end, and leave nothing of its hosts behind.

        `fail` ends the job as Failed with a FailureReason.
        """
        try:
            self.directory.mkdir(parents=True)
            steps()
        except JobAbandoned:
            pass
        except JobFailed as failure:
            fail(str(failure))
        except Exception as error:  # whatever breaks in the sandbox is AWS's internal error to the user
            import traceback

            traceback.print_exc()
            fail(f"{INTERNAL_ERROR} [sandbox: {type(error).__name__}: {error}]")
        finally:
            cloud.remove(self.directory)
