"""Start a sandbox in the background, find it again, stop it for good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from airflow_smd.errors import SmdError
from airflow_smd.sandbox.capabilities import NAMESPACE_PREFIX, namespaces
from airflow_smd.sandbox.children import Children, ProcessId
from airflow_smd.sandbox.control import Control, SandboxRefused
from airflow_smd.sandbox.runtime import Settings

START_SECONDS = 90.0
"""How long `up` waits; a start takes about two seconds on an idle machine."""
LOG_BYTES = 10_000_000
"""A longer log is put aside at the next start; one of those is kept."""
END_SECONDS = 10.0
"""How long `down` waits beyond the grace of the jobs before it kills."""


class SandboxDidNotStart(SmdError):
    """The sandbox's process ended, or did not answer in time; its log tells why."""


class HomeIsTaken(SandboxDidNotStart):
    """Another process serves the home; `up` then waits for its answer instead."""


HOME_IS_TAKEN = 75
"""The exit code of `serve` for that (EX_TEMPFAIL)."""


def default_home() -> Path:
    """Return where the sandbox keeps its state unless told: AIRFLOW_SMD_SANDBOX_HOME or under ~/.local."""
    named = os.environ.get("AIRFLOW_SMD_SANDBOX_HOME")
    return Path(named) if named else Path.home() / ".local/state/airflow-smd/sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What a home says about the process that serves it."""

    process: ProcessId
    endpoint_url: str
    settings: Mapping[str, Any]

    def environment(self) -> dict[str, str]:
        """Return the variables with which Airflow and every boto3 client reach the sandbox."""
        region = str(self.settings["region"])
        connection = {
            "conn_type": "aws",
            "login": "sandbox",
            "password": "sandbox",
            "extra": {"region_name": region, "endpoint_url": self.endpoint_url},
        }
        return {
            "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(connection),
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": "sandbox",
            "AWS_SECRET_ACCESS_KEY": "sandbox",
            "AWS_DEFAULT_REGION": region,
        }


def running(home: Path) -> Running | None:
    """Return the sandbox of a home if its process is alive."""
    try:
        noted = json.loads((home / "sandbox.json").read_text())
        found = Running(
            process=ProcessId(noted["pid"], noted["started"]),
            endpoint_url=noted["endpoint_url"],
            settings=noted["settings"],
        )
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
    return found if found.process.alive() else None


def note_running(settings: Settings, endpoint_url: str) -> None:
    """Write down that this process serves the home."""
    me = ProcessId.of(os.getpid())
    noted = {
        "pid": me.pid,
        "started": me.started,
        "endpoint_url": endpoint_url,
        "settings": settings_as_json(settings),
    }
    write_atomically(settings.home / "sandbox.json", json.dumps(noted, indent=1).encode())
    write_atomically(settings.home / "port", endpoint_url.rpartition(":")[2].encode())


def remembered_port(home: Path) -> int:
    """Return the port that a home used before, 0 if it is new: a connection stays valid over a restart."""
    try:
        return int((home / "port").read_text())
    except (FileNotFoundError, ValueError):
        return 0


def settings_as_json(settings: Settings) -> dict[str, Any]:
    """Return settings as plain JSON."""
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in asdict(settings).items()
    }


def settings_from_json(values: Mapping[str, Any]) -> Settings:
    """Return the settings that `settings_as_json` gave; what is missing has its default."""
    known = {field.name: values[field.name] for field in fields(Settings) if field.name in values}
    for field in fields(Settings):
        if field.name in known and (field.name == "home" or isinstance(field.default, Path)):
            known[field.name] = Path(known[field.name]).absolute()
    return Settings(**known)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that a reader, or a crash, sees the old one or the new one whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def up(settings: Settings, port: int | None = None) -> Running:
    """Start the sandbox of `settings.home` unless it runs, and return it once it answers."""
    if found := running(settings.home):
        _check_same(found, settings, port)
        return found
    _make(settings.home)
    log = settings.home / "server.log"
    command = [sys.executable, "-m", "airflow_smd.sandbox", "serve", *arguments(settings, port)]
    if namespaces(settings) == "user":
        command = [*NAMESPACE_PREFIX, *command]
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    with log.open("ab") as output:
        began = output.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=settings.home,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = running(settings.home)
        if found and _answers(found):
            return found
        if process.poll() not in (None, HOME_IS_TAKEN):
            raise SandboxDidNotStart(
                _last_words(log, began) or f"Its process ended and wrote nothing to {log}."
            )
        time.sleep(0.05)
    process.kill()
    process.wait()
    words = _last_words(log, began)
    raise SandboxDidNotStart(f"No answer within {START_SECONDS:.0f} s; {log} ends with: {words}")


def _make(home: Path) -> None:
    try:
        home.mkdir(parents=True, exist_ok=True)
        write_atomically(home / ".writable", b"")
    except OSError as refused:
        message = f"The home {home} cannot be written ({refused}): choose another --home."
        raise SandboxDidNotStart(message) from refused


def arguments(settings: Settings, port: int | None) -> list[str]:
    """Return the options of `serve` that make these settings."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings_as_json(settings).items()]
    return options if port is None else [*options, f"--port={port}"]


def down(home: Path, settings_grace_seconds: float = 10.0) -> bool:
    """Stop the sandbox of a home and everything that it started; False if it was not running."""
    found = running(home)
    if found:
        os.kill(found.process.pid, signal.SIGTERM)
        grace_seconds = float(found.settings.get("stop_grace_seconds", settings_grace_seconds)) + END_SECONDS
        if not _ended(found.process, grace_seconds):
            os.kill(found.process.pid, signal.SIGKILL)
            _ended(found.process, END_SECONDS)
    left = Children(home / "children").end()
    (home / "sandbox.json").unlink(missing_ok=True)
    return bool(found or left)


def _ended(process: ProcessId, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _answers(found: Running) -> bool:
    try:
        return int(Control(found.endpoint_url).health()["pid"]) == found.process.pid
    except SandboxRefused:
        return False


def _check_same(found: Running, settings: Settings, port: int | None) -> None:
    """Refuse to take a running sandbox for one with other settings."""
    asked = settings_as_json(settings)
    defaults = {field.name: field.default for field in fields(Settings)}
    differing = [
        f"{name} is {found.settings.get(name)!r}, not {value!r}"
        for name, value in asked.items()
        if value != found.settings.get(name) and value != _plain(defaults[name])
    ]
    if port and not found.endpoint_url.endswith(f":{port}"):
        differing.append(f"it answers at {found.endpoint_url}, not at port {port}")
    if differing:
        raise SandboxDidNotStart(
            f"The sandbox of {settings.home} already runs with other settings: {'; '.join(differing)}. "
            f"Stop it first: airflow-smd sandbox down --home {settings.home}"
        )


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _last_words(log: Path, began: int) -> str:
    """Return the message with which a process ended, or the end of its traceback."""
    words = log.read_bytes()[began:].decode(errors="replace").strip()
    return "\n".join(words.rpartition("airflow-smd sandbox serve: ")[2].splitlines()[-8:])
