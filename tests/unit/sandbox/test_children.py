from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from airflow_smd.sandbox.children import Children, ProcessId

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
)


def test_children_are_ended_with_their_own_children(tmp_path: Path) -> None:
    children = Children(tmp_path)
    shell = children.start(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert shell.stdout
    grandchild = ProcessId.of(int(shell.stdout.readline()))
    assert grandchild.alive()

    assert children.end() == 1

    shell.wait()
    assert not grandchild.alive()
    assert children.noted() == []


def test_child_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    children = Children(tmp_path)
    child = children.start([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()

    assert children.end(grace_seconds=0.1) == 1

    assert child.wait() == -9


def test_reused_number_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / str(os.getpid())).write_text("started long ago")

    assert Children(tmp_path).end() == 0
    assert Children(tmp_path).noted() == []


def test_another_process_finds_what_was_started(tmp_path: Path) -> None:
    child = Children(tmp_path).start(["sleep", "60"])

    assert Children(tmp_path).end() == 1
    assert child.wait() == -15


def test_forgotten_child_is_not_ended(tmp_path: Path) -> None:
    children = Children(tmp_path)
    child = children.start(["sleep", "60"])
    children.forget(child.pid)

    assert children.end() == 0
    assert child.poll() is None
    child.kill()
    child.wait()


def test_ended_process_is_not_alive() -> None:
    child = subprocess.Popen(["sleep", "0"])
    identified = ProcessId.of(child.pid)
    child.wait()

    assert not identified.alive()
