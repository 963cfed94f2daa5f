"""The processes that a sandbox starts, remembered on disk so that none outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid with the start time of its process, so that a reused number is not taken for it."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """Identify a process that runs now."""
        return cls(pid, start_time(pid) or "gone")

    def alive(self) -> bool:
        """Tell whether this very process still runs."""
        return start_time(self.pid) == self.started


def start_time(pid: int) -> str | None:
    """Return when the process with this pid started, in the system's own words; None if it has ended."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if after_name[0] in "ZX" else after_name[19]
    ps = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return ps.stdout.strip() or None


class Children:
    """Starts processes in sessions of their own and notes each in a file until it is forgotten."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def start(self, command: Sequence[str | os.PathLike[str]], **popen: Any) -> subprocess.Popen[Any]:
        """Start a process that leads its own session and process group; `popen` as for Popen."""
        self._directory.mkdir(parents=True, exist_ok=True)
        process: subprocess.Popen[Any] = subprocess.Popen(command, start_new_session=True, **popen)
        self.note(process.pid)
        return process

    def note(self, pid: int) -> None:
        """Remember a process group leader that was started in another way."""
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / str(pid)).write_text(ProcessId.of(pid).started)

    def forget(self, pid: int) -> None:
        """Note that a process was waited for and is no more."""
        (self._directory / str(pid)).unlink(missing_ok=True)

    def noted(self) -> list[ProcessId]:
        """Return the noted processes, alive or not."""
        if not self._directory.is_dir():
            return []
        found = []
        for path in self._directory.iterdir():
            with suppress(FileNotFoundError, ValueError):
                found.append(ProcessId(int(path.name), path.read_text()))
        return found

    def end(self, grace_seconds: float = 2.0) -> int:
        """End every noted process with its group: SIGTERM, grace, SIGKILL. Return how many were alive."""
        alive = [process for process in self.noted() if process.alive()]
        _signal(alive, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline and any(process.alive() for process in alive):
            time.sleep(0.05)
        _signal([process for process in alive if process.alive()], signal.SIGKILL)
        for process in self.noted():
            self.forget(process.pid)
        return len(alive)


def _signal(processes: Sequence[ProcessId], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
