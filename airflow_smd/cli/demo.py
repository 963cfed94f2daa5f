"""airflow-smd demo: the retraining DAG on the sandbox, from raw data to the report."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_smd.cli import demo_site
from airflow_smd.cli.demo_screen import Screen
from airflow_smd.cli.local_airflow import LocalAirflow, follow
from airflow_smd.errors import InvalidInput, Problem, SmdError

DAG_ID = "smd_retrain"
LOOK_SECONDS = 0.3


class DemoFailed(SmdError):
    """The DAG run failed; the log says why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the demo takes."""
    parser.add_argument(
        "--home", type=Path, default=Path(".airflow-smd"), help="state of the demo (default: %(default)s)"
    )
    parser.add_argument(
        "--dags", type=Path, default=demo_site.dags_folder(), help="folder that holds smd_retrain.py"
    )
    parser.add_argument("--ui", action="store_true", help="start Airflow's own processes and wait for Ctrl-C")
    parser.add_argument(
        "--conf",
        default="{}",
        metavar="JSON",
        help="params of the run, as the form would send them: '{\"nodes\": 4}'",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; 0 if the DAG run succeeded."""
    conf = _params(arguments.conf)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, _interrupt)
    screen = Screen()
    home = arguments.home.resolve()
    try:
        with _alone(home), _sandbox(home / "sandbox", screen) as sandbox:
            airflow = LocalAirflow(
                home=home / "airflow",
                dags=arguments.dags.resolve(),
                environment=demo_site.environment(sandbox.endpoint_url),
            )
            try:
                migration = threading.Thread(target=airflow.migrate)
                migration.start()
                demo_site.furnish(sandbox.endpoint_url)
                migration.join()
                return _serve(airflow, screen) if arguments.ui else _run_once(airflow, screen, sandbox, conf)
            finally:
                airflow.stop()
    except KeyboardInterrupt:
        screen.say("Stopped; every process is ended.")
        return 130


def _run_once(airflow: LocalAirflow, screen: Screen, sandbox: _Sandbox, conf: Mapping[str, Any]) -> int:
    started = time.time()
    process = airflow.test(DAG_ID, conf)
    try:
        _watch(process, airflow, screen, sandbox, started)
    except KeyboardInterrupt:
        screen.say("Stopping the run, and what it left in the sandbox")
        airflow.interrupt()
        demo_site.sweep(sandbox.endpoint_url)
        raise
    if process.returncode:
        raise DemoFailed(f"{screen.failure()}\nThe whole log: {airflow.log('test')}")
    report = demo_site.newest_report(sandbox.endpoint_url, since=started)
    screen.report(report, seconds=time.time() - started)
    return 0


def _watch(
    process: subprocess.Popen[bytes],
    airflow: LocalAirflow,
    screen: Screen,
    sandbox: _Sandbox,
    started: float,
) -> None:
    lines = follow(airflow.log("test"))
    with screen.live():
        over = False
        while not over:
            over = process.poll() is not None
            if not sandbox.lives():  # the tasks would wait for it: an endpoint may come back
                airflow.interrupt()
                raise DemoFailed(f"the sandbox has ended; its log may say why: {sandbox.home}/server.log")
            for line in iter(lambda: next(lines), ""):
                screen.log_line(line)
            screen.tasks(
                [task for task in airflow.tasks(DAG_ID) if (task.started_at or "") >= _sqlite_time(started)]
            )
            time.sleep(LOOK_SECONDS)


def _serve(airflow: LocalAirflow, screen: Screen) -> int:
    screen.say("Starting Airflow: API server, scheduler, DAG processor and triggerer")
    airflow.start()
    screen.say(f"Airflow is at {airflow.url} ; trigger {DAG_ID} at {airflow.url}/dags/{DAG_ID}")
    screen.say("Ctrl-C ends every process")
    while True:
        time.sleep(3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sandbox:
    home: Path
    endpoint_url: str
    pid: int

    def lives(self) -> bool:
        """Return whether its process is there."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Keep a second demo out of this home: the first to end would take the sandbox from the other."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / "demo.lock").open("w")
    except OSError as error:
        raise DemoFailed(f"--home {home} cannot be written ({error}): choose another.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFailed(f"another demo runs in {home}: end it, or choose another --home.") from None
        yield


@contextmanager
def _sandbox(home: Path, screen: Screen) -> Iterator[_Sandbox]:
    command = [sys.executable, "-m", "airflow_smd.sandbox"]
    up = subprocess.run([*command, "up", "--home", str(home)], check=False, capture_output=True, text=True)
    if up.returncode:
        raise DemoFailed(up.stderr.strip().removeprefix("airflow-smd "))
    try:
        answer = subprocess.run(
            [*command, "status", "--home", str(home), "--json"], check=True, stdout=subprocess.PIPE, text=True
        )
        status = json.loads(answer.stdout)
        screen.say(f"The sandbox answers at {status['endpoint_url']}")
        for capability in status["capabilities"]:
            left_out = "" if capability["used"] else f"; left out: {capability['left_out']}"
            install = "" if capability["used"] else f"; to get it: {capability['install']}"
            screen.say(f"  {capability['name']}: {capability['detail']}{left_out}{install}")
        yield _Sandbox(home=home, endpoint_url=status["endpoint_url"], pid=status["pid"])
    finally:
        subprocess.run([*command, "down", "--home", str(home)], check=True, stdout=subprocess.DEVNULL)


def _params(text: str) -> dict[str, Any]:
    try:
        params = json.loads(text)
    except ValueError as error:
        params = error
    if isinstance(params, dict):
        return params
    raise InvalidInput(
        [
            Problem(
                rule="conf-unreadable",
                field="--conf",
                value=text,
                message="Params by name are needed, as a JSON object"
                + (f" ({params})." if isinstance(params, ValueError) else "."),
                remedy="""Write it like --conf '{"nodes": 4, "epochs": 30}'.""",
            )
        ]
    )


def _sqlite_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))


def _interrupt(_signal: int, _frame: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # a second one would leave half of it behind
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
