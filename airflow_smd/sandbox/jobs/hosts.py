"""Running hosts: the sandbox's side of the keeper."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_smd.sandbox.jobs.machines import Machine
from airflow_smd.sandbox.runtime import Runtime

_KEEPER = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import airflow_smd.sandbox.jobs.keeper as k; k.main()"
)
_PACKAGE_ROOT = Path(__file__).resolve().parents[3]


class Isolation(StrEnum):
    """How far hosts are kept apart."""

    NAMESPACE = "namespace"
    """Own network, hostname, processes and file system each, as root of this machine."""
    USER_NAMESPACE = "user_namespace"
    """The same without being root; no sshd, hence no mpirun over several hosts."""
    PROCESS = "process"
    """Plain processes; /opt/ml is elsewhere and all hosts share one network."""

    @property
    def namespaces(self) -> bool:
        """Tell whether a host has its real /opt/ml and its own network."""
        return self is not Isolation.PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A directory shown at a place in the host."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """All that is needed to start one host."""

    machine: Machine
    directory: Path
    """The host's own directory; its /opt/ml is `ml` in it."""
    argv: Sequence[str]
    environment: Mapping[str, str]
    working_directory: str = "/"
    binds: Sequence[Bind] = ()
    layers: Sequence[Path] = ()
    on_host_root: bool = True
    visible: Sequence[Path] = ()
    """Paths that must also exist in a host, shown read-only where its own directories hide them."""


@dataclass(slots=True)
class Session:
    """The hosts of one job from start to end. Use as a context manager: leaving it ends them all."""

    runtime: Runtime
    isolation: Isolation
    directory: Path
    on_line: Callable[[str, str], None]
    """Called with host name and line, from one thread per host, in the order printed."""
    reaches_aws: bool = True
    """Whether the hosts see the sandbox's endpoint; not with network isolation."""
    codes: dict[str, int] = field(default_factory=dict)
    """Exit code of every host that has ended."""
    pids: dict[str, int] = field(default_factory=dict)
    broken: str | None = None
    """Why the hosts could not be started, if so."""
    changed: threading.Event = field(default_factory=threading.Event)
    """Set when a host has started or ended; the owner clears it and may set it for reasons of its own."""
    _count: int = 0
    _control: socket.socket | None = None
    _keeper: subprocess.Popen[Any] | None = None
    _readers: list[threading.Thread] = field(default_factory=list)
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    def start(self, plans: Sequence[HostPlan]) -> None:
        """Start all hosts at once."""
        self._count = len(plans)
        outputs = [os.pipe() for _ in plans]
        ours, theirs = socket.socketpair()
        described = [
            describe(plan, output[1], len(plans)) for plan, output in zip(plans, outputs, strict=True)
        ]
        spec = self.directory / "keeper.json"
        spec.touch(mode=0o600)
        spec.write_text(json.dumps(self._job(described)))
        inherited = [theirs.fileno(), *(writer for _, writer in outputs)]
        self._keeper = self.runtime.children.start(
            [sys.executable, "-S", "-E", "-c", _KEEPER, _PACKAGE_ROOT, spec, str(theirs.fileno())],
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        for _, writer in outputs:
            os.close(writer)
        self._control = ours
        for plan, (reader, _) in zip(plans, outputs, strict=True):
            self._thread(self._read_output, plan.machine.name, reader)
        self._thread(self._read_events)

    def signal(self, number: int) -> None:
        """Send a signal to the first process of every host that still runs."""
        if self._control is not None:
            with suppress(OSError):
                self._control.sendall(json.dumps({"signal": number}).encode() + b"\n")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal(signal.SIGKILL)
        for reader in self._readers:
            reader.join(timeout=10)
        if self._keeper is not None:
            try:
                self._keeper.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._keeper.kill()
                self._keeper.wait()
            self.runtime.children.forget(self._keeper.pid)
        for close in self._listeners:  # each takes its server's poll interval, which no job should wait for
            threading.Thread(target=close, daemon=True).start()
        if self._control is not None:
            self._control.close()

    def _job(self, described: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "mode": "namespace" if self.isolation.namespaces else "process",
            "user_namespace": self.isolation is Isolation.USER_NAMESPACE,
            "endpoint_port": urlsplit(self.runtime.endpoint_url).port,
            "hosts": described,
        }

    def _thread(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        self._readers.append(thread)

    def _read_output(self, host: str, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as output:
            for line in output:
                self.on_line(host, line.decode(errors="replace").rstrip("\r\n"))

    def _read_events(self) -> None:
        pending, descriptors = b"", []
        assert self._control is not None
        while True:
            try:
                data, received, _, _ = socket.recv_fds(self._control, 65536, 64)
            except OSError:
                data, received = b"", []
            descriptors += received
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self._note(json.loads(line), descriptors)
            if not data and len(self.codes) < self._count:
                self.broken = self.broken or "the keeper of the hosts has died"
            self.changed.set()
            if not data:
                return

    def _note(self, event: dict[str, Any], descriptors: list[int]) -> None:
        match event["event"]:
            case "listener":
                listener = socket.socket(fileno=descriptors.pop(0))
                if self.reaches_aws:
                    self._listeners.append(self.runtime.listen(listener))
                else:
                    listener.close()
            case "started":
                self.pids[event["host"]] = event["pid"]
            case "exit":
                self.codes[event["host"]] = event["code"]
            case "broken":
                self.broken = event["reason"]


def address(number: int) -> str:
    """Return the address of the host with this number; hosts of different jobs never meet."""
    return f"10.0.{(number + 2) // 256}.{(number + 2) % 256}"


def describe(plan: HostPlan, output: int, count: int) -> dict[str, Any]:
    """Return what the keeper needs to know of a host, as JSON."""
    names = [f"{address(number)} algo-{number + 1}" for number in range(count)]
    return {
        "name": plan.machine.name,
        "address": address(plan.machine.number),
        "hosts_file": "\n".join(["127.0.0.1 localhost", *names]) + "\n",
        "directory": str(plan.directory),
        "output": output,
        "argv": list(plan.argv),
        "environment": dict(plan.environment),
        "working_directory": plan.working_directory,
        "binds": [
            {"source": str(bind.source), "target": bind.target, "read_only": bind.read_only}
            for bind in plan.binds
        ],
        "layers": [str(layer) for layer in plan.layers],
        "on_host_root": plan.on_host_root,
        "visible": [str(path) for path in plan.visible],
    }


def choose(runtime: Runtime) -> tuple[Isolation, str]:
    """Return the best isolation that this machine allows, by trying, and a line that says why."""
    wanted = runtime.settings.hosts
    if wanted == "process":
        return Isolation.PROCESS, "hosts are plain processes, as asked"
    tried = [Isolation.NAMESPACE] if os.geteuid() == 0 else [Isolation.USER_NAMESPACE]
    reasons = []
    for isolation in tried:
        reason = _why_not(runtime, isolation)
        if reason is None:
            return isolation, f"each host is a {isolation.value.replace('_', ' ')}"
        reasons.append(reason)
    if wanted == "namespace":
        raise OSError(f"This machine does not allow namespaces: {'; '.join(reasons)}")
    return Isolation.PROCESS, f"hosts are plain processes, since namespaces are refused here: {reasons[-1]}"


def _why_not(runtime: Runtime, isolation: Isolation) -> str | None:
    directory = runtime.directory("jobs") / f".probe-{secrets.token_hex(4)}"
    machine = Machine(name="algo-1", number=0, group="probe", instance_type="probe")
    lines: list[str] = []
    (directory / "algo-1" / "ml").mkdir(parents=True)
    plan = HostPlan(
        machine=machine,
        directory=directory / "algo-1",
        argv=["/bin/sh", "-c", "test $$ = 1 && test -d /opt/ml && echo namespaces work"],
        environment={"PATH": os.defpath},
        binds=[Bind(source=directory / "algo-1" / "ml", target="/opt/ml")],
    )
    try:
        with Session(runtime, isolation, directory, lambda _host, line: lines.append(line)) as session:
            session.start([plan])
            for thread in session._readers:
                thread.join(timeout=10)
        if lines == ["namespaces work"]:
            return None
        return (session.broken or " ".join(lines) or "no answer").strip().splitlines()[-1]
    except OSError as error:
        return str(error)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
