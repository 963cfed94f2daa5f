"""Airflow on this machine, in a home of its own, against one AWS endpoint."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from airflow_smd.errors import SmdError

PARTS = ("api-server", "scheduler", "dag-processor", "triggerer")
START_SECONDS = 240.0
STOP_SECONDS = 20.0


class AirflowNotUp(SmdError):
    """A part of Airflow ended or did not answer in time; its log says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """Where one task of a run stands."""

    task_id: str
    state: str | None
    started_at: str | None
    ended_at: str | None
    try_number: int


@dataclass(slots=True, kw_only=True)
class LocalAirflow:
    """An Airflow with SQLite and the local executor; its parts are started here and ended by process id.

    `airflow standalone` would leave its children behind on SIGTERM, so each part is a child of ours.
    """

    home: Path
    dags: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    _started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.port = self.port or _free_port()

    @property
    def url(self) -> str:
        """Return the address of the pages and of the API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """Return the environment of every part."""
        keys = self._keys()
        bin_directory = str(Path(sys.executable).parent)
        settings = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__API_AUTH__JWT_SECRET": keys["jwt"],
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": keys["jwt"],
            "AIRFLOW__CORE__AUTH_MANAGER": (
                "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
            ),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__FERNET_KEY": keys["fernet"],
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.database}",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.home / "logs"),
            # free ones, so that a second Airflow on this machine does not get in the way
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": keys["trigger_log_port"],
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": keys["worker_log_port"],
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            # how long a worker's end may go unseen; a task that resumes before is taken for a killed one
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "PATH": f"{bin_directory}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONUNBUFFERED": "1",
        }
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW_")}
        return inherited | settings | dict(self.environment)

    @property
    def database(self) -> Path:
        """Return the SQLite file."""
        return self.home / "airflow.db"

    def log(self, part: str) -> Path:
        """Return the file that a part writes to."""
        return self.home / f"{part}.log"

    def migrate(self) -> None:
        """Create or upgrade the database."""
        self._spawn("db", "migrate", log="migrate")
        if self._started.pop("migrate").wait():
            raise AirflowNotUp(f"airflow db migrate failed:\n{_tail(self.log('migrate'))}")

    def test(self, dag_id: str, conf: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        """Start one run of a DAG in a process of its own, without scheduler and triggerer."""
        self._spawn("dags", "test", dag_id, "--conf", json.dumps(conf), log="test")
        return self._started["test"]

    def start(self) -> None:
        """Start every part and return when the API answers and the scheduler and triggerer are healthy."""
        for part in PARTS:
            self._spawn(part, log=part)
        deadline = time.monotonic() + START_SECONDS
        while not self._healthy():
            for part, process in self._started.items():
                if process.poll() is not None:
                    raise AirflowNotUp(f"airflow {part} ended:\n{_tail(self.log(part))}")
            if time.monotonic() > deadline:
                raise AirflowNotUp(
                    f"Airflow is not healthy after {START_SECONDS:.0f} s: see {self.home}/*.log"
                )
            time.sleep(0.5)

    def interrupt(self) -> None:
        """End a test run as Ctrl-C does: SIGTERM would end the task that runs, and the run would go on."""
        self._end((signal.SIGINT, 5.0), (signal.SIGKILL, 5.0))

    def stop(self) -> None:
        """End what was started, by process group, the politest way first."""
        self._end((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 5.0))

    def _end(self, *ways: tuple[signal.Signals, float]) -> None:
        for sent, patience in ways:
            for process in self._started.values():
                _signal(process, sent)
            deadline = time.monotonic() + patience
            while any(_group_lives(process) for process in self._started.values()):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)
            else:
                break
        self._started.clear()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON answer of Airflow's REST API (`/api/v2`)."""
        token = self._request("GET", "/auth/token")["access_token"]
        return self._request(method, f"/api/v2{path}", body, {"Authorization": f"Bearer {token}"})

    def tasks(self, dag_id: str) -> list[TaskState]:
        """Return the tasks of the newest run, read from the database so that it costs Airflow nothing."""
        query = (
            "SELECT task_id, state, start_date, end_date, try_number FROM task_instance WHERE run_id ="
            " (SELECT run_id FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1) AND dag_id = ?"
        )
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=5)) as database:
            try:
                rows = database.execute(query, (dag_id, dag_id)).fetchall()
            except sqlite3.OperationalError:  # locked, or not migrated yet: nothing to tell this time
                return []
        names = ("task_id", "state", "started_at", "ended_at", "try_number")
        return [TaskState(**dict(zip(names, row, strict=True))) for row in rows]

    def _keys(self) -> dict[str, str]:
        path = self.home / "keys.json"
        if not path.exists():
            fernet = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
            path.touch(mode=0o600)
            ports = {name: str(_free_port()) for name in ("trigger_log_port", "worker_log_port")}
            path.write_text(json.dumps({"jwt": secrets.token_hex(32), "fernet": fernet, **ports}))
        keys: dict[str, str] = json.loads(path.read_text())
        return keys

    def _spawn(self, *arguments: str, log: str) -> None:
        with self.log(log).open("wb") as output:
            self._started[log] = subprocess.Popen(
                [sys.executable, "-m", "airflow", *arguments],
                env=self.env,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _healthy(self) -> bool:
        try:
            health = self._request("GET", "/api/v2/monitor/health")
        except (OSError, ValueError):
            return False
        return all(
            health[part]["status"] == "healthy" for part in ("scheduler", "triggerer", "dag_processor")
        )

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        request = urllib.request.Request(  # noqa: S310  # our own address
            f"{self.url}{path}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise ValueError(f"{method} {path}: {error.code} {error.read().decode()[:2000]}") from error
        return json.loads(text) if text else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    process.poll()
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _group_lives(process: subprocess.Popen[bytes]) -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _tail(path: Path, lines: int = 20) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def follow(path: Path) -> Iterator[str]:
    """Yield the lines that a file has gained since the last time, for ever; "" when there is none now."""
    handle: IO[str] | None = None
    rest = ""
    while True:
        if handle is None and path.exists():
            handle = path.open(errors="replace")
        chunk = handle.readline() if handle else ""
        rest += chunk
        if rest.endswith("\n"):
            yield rest.rstrip("\n")
            rest = ""
        else:
            yield ""
