"""What the services of one sandbox share: where its state lies, how it behaves, how it ends."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_smd.sandbox.children import Children
from airflow_smd.sandbox.faults import Faults
from airflow_smd.sandbox.gate import Gate

Environ = dict[str, Any]
Wsgi = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
ACCOUNT_ID = "123456789012"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one sandbox behaves; the seconds are much shorter than AWS's own."""

    home: Path
    """State of this sandbox; another home is another sandbox."""
    region: str = "us-east-1"
    hosts: str = "auto"
    """`namespace`, `process`, or `auto`: a namespace for each host where the machine allows it."""
    images: str = "auto"
    """`buildah`, `python`, or `auto`: buildah where it is installed."""
    container_python: Path = Path(sys.executable)
    """The Python that stands for the one inside every image; its `bin` heads PATH in a host."""
    file_system_seconds: float = 3.0
    """How long FSx stays CREATING; AWS takes about 454 s + 2.18 ms per GiB."""
    stop_grace_seconds: float = 10.0
    """From SIGTERM to SIGKILL of a stopped job; AWS waits 120 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that the sandbox can start."""

    digest: str
    layers: tuple[Path, ...]
    """Unpacked layers, lowest first, to be laid over this machine's own root when `on_host_root`."""
    on_host_root: bool
    environment: dict[str, str]
    working_directory: str = "/"


@dataclass(slots=True, kw_only=True)
class Runtime:
    """One sandbox while it runs. A service sets the callables that it provides when it registers."""

    settings: Settings
    endpoint_url: str
    faults: Faults = field(default_factory=Faults)
    """Failures on request; the work behind a call asks `faults.take(kind, service=..., **request)`."""
    restored: bool = False
    """Whether moto's state came from a snapshot; False in a new home."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the sandbox goes down: wait on it instead of sleeping."""
    own_state: set[str] = field(default_factory=set)
    """Services (moto's names) that keep their state themselves; the snapshot leaves them out."""
    routes: dict[str, Wsgi] = field(default_factory=dict)
    """Path prefix -> a WSGI application that answers there instead of AWS: `/v2/` for a registry."""
    listen: Callable[[socket.socket], Callable[[], None]] = field(default=lambda _socket: lambda: None)
    """Serve this endpoint on one more listening socket; returns what ends it. Set by the server."""
    file_system_directory: Callable[[str, str], Path] = field(default=lambda _id, _path: Path("/nonexistent"))
    """(file system id, DirectoryPath) -> the real directory; KeyError if there is none. Set by fsx."""
    image: Callable[[str], Image | None] = field(default=lambda _uri: None)
    """Image URI (tag or digest) -> the image, None if the sandbox's registry lacks it. Set by codebuild."""
    gate: Gate = field(default_factory=Gate)
    _at_stop: list[Callable[[], None]] = field(default_factory=list)

    @property
    def children(self) -> Children:
        """Start processes with it; whatever was started ends with the sandbox, also when that is killed."""
        return Children(self.settings.home / "children")

    def changing(self) -> AbstractContextManager[None]:
        """Hold this while a thread of yours changes moto's backends; requests hold it already."""
        return self.gate.changing()

    def directory(self, name: str) -> Path:
        """Return the directory of one service's state, created."""
        path = self.settings.home / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def at_stop(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the sandbox goes down, last registered first."""
        self._at_stop.append(callback)

    def stop(self) -> list[Exception]:
        """End every service; one that fails does not keep the others from ending."""
        self.stopping.set()
        failures = []
        while self._at_stop:
            try:
                self._at_stop.pop()()
            except Exception as failure:  # reported by the caller
                failures.append(failure)
        return failures
