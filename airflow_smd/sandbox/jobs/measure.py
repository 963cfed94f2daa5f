"""What the hosts of a job use of this machine, measured from their processes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@dataclass(slots=True)
class Meter:
    """Turns process counters into SageMaker's instance metrics."""

    _earlier: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Host -> time of the last look, since the machine's start, and CPU seconds used until then."""

    def look(self, pids: Mapping[str, int], disks: Mapping[str, Path]) -> dict[str, dict[str, float]]:
        """Return metric -> percent for each host whose first process has the given pid.

        CPUUtilization is the sum over cores, so it can exceed 100, as on SageMaker.
        """
        table = _processes()
        memory = _memory_bytes()
        measured: dict[str, dict[str, float]] = {}
        for host, pid in pids.items():
            family = _family(table, pid)
            if not family:
                continue
            now, used = _since_boot(), sum(table[member].cpu_seconds for member in family)
            before, used_before = self._earlier.get(host, (table[pid].started, 0.0))
            self._earlier[host] = (now, used)
            metrics = {"MemoryUtilization": 100 * sum(table[member].bytes for member in family) / memory}
            if now > before:
                metrics["CPUUtilization"] = max(0.0, 100 * (used - used_before) / (now - before))
            with suppress(OSError):
                disk = os.statvfs(disks[host])
                metrics["DiskUtilization"] = 100 * (1 - disk.f_bavail / disk.f_blocks)
            measured[host] = metrics
        return measured


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    cpu_seconds: float
    bytes: int
    started: float
    """Seconds after the machine's start."""


def _processes() -> dict[int, _Process]:
    table = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = path.read_text().rpartition(")")[2].split()
            # From field 3 on, proc(5): ppid 4; utime, stime, cutime, cstime 14 to 17; starttime 22; rss 24.
            cpu = sum(map(int, fields[11:15])) / _TICKS
            table[int(path.parent.name)] = _Process(
                int(fields[1]), cpu, int(fields[21]) * _PAGE_BYTES, int(fields[19]) / _TICKS
            )
    return table


def _family(table: Mapping[int, _Process], ancestor: int) -> set[int]:
    family = {ancestor} & table.keys()
    while more := {pid for pid, process in table.items() if process.parent in family} - family:
        family |= more
    return family


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _memory_bytes() -> int:
    with suppress(ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    return 1 << 34
