"""What hosts use, read from their processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from airflow_smd.sandbox.jobs.measure import Meter


def test_busy_host_shows_more_processor_use_than_an_idle_one(tmp_path: Path) -> None:
    scripts = ["while True: pass", "import time; time.sleep(60)"]
    processes = [subprocess.Popen([sys.executable, "-c", script]) for script in scripts]
    try:
        time.sleep(1.0)
        pids = {"busy": processes[0].pid, "idle": processes[1].pid, "gone": 2**22 + 1}

        measured = Meter().look(pids, dict.fromkeys(pids, tmp_path))
    finally:
        for process in processes:
            process.kill()
            process.wait()

    assert set(measured) == {"busy", "idle"}
    assert measured["busy"]["CPUUtilization"] > 3 * measured["idle"]["CPUUtilization"]
    assert 0 < measured["idle"]["MemoryUtilization"] < 100
    assert 0 <= measured["idle"]["DiskUtilization"] <= 100
