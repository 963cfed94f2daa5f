"""A buildspec, read and run: phases of shell commands that share one environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_smd.sandbox.children import Children

PHASES = ("install", "pre_build", "build", "post_build")
_STEP = """\
[ -f "$1" ] && . "$1"
[ -f "$2" ] && cd "$(cat "$2")"
trap 'code=$?; export -p > "$1"; pwd > "$2"; exit $code' EXIT
eval "$3"
"""
"""Commands of one build see each other's exports and `cd`, as in CodeBuild's version 0.2."""


class BuildspecError(ValueError):
    """Not a buildspec; the message is CodeBuild's kind."""


class Interrupted(Exception):
    """The build was stopped or ran out of time while a command ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buildspec:
    """What the phases run."""

    variables: Mapping[str, str]
    phases: Mapping[str, tuple[str, ...]]
    finally_: Mapping[str, tuple[str, ...]]


def parse_buildspec(text: str) -> Buildspec:
    """Return the buildspec that YAML (or JSON, which is YAML) describes."""
    try:
        raw = json.loads(text)
    except ValueError:
        import yaml

        try:
            raw = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise BuildspecError(f"YAML_FILE_ERROR: {error}") from error
    if not isinstance(raw, Mapping) or str(raw.get("version")) not in ("0.1", "0.2"):
        raise BuildspecError("YAML_FILE_ERROR: This build image requires selecting version 0.1 or 0.2")
    phases = raw.get("phases") or {}
    unknown = sorted(set(phases) - set(PHASES))
    if unknown or not phases:
        raise BuildspecError(f"YAML_FILE_ERROR: Unknown or no phases: {', '.join(unknown)}")
    variables = (raw.get("env") or {}).get("variables") or {}
    return Buildspec(
        variables={str(key): str(value) for key, value in variables.items()},
        phases={name: _commands(phases[name], "commands") for name in PHASES if name in phases},
        finally_={name: _commands(phases[name], "finally") for name in PHASES if name in phases},
    )


def _commands(phase: Any, key: str) -> tuple[str, ...]:
    commands = (phase or {}).get(key) or []
    if not isinstance(commands, list):
        raise BuildspecError(f"YAML_FILE_ERROR: Expected {key} to be a list of commands")
    return tuple(str(command) for command in commands)


@dataclass(slots=True, kw_only=True)
class Shell:
    """Runs a build's commands one after the other, until it is interrupted."""

    children: Children
    directory: Path
    """Where the source lies and the first command starts."""
    state: Path
    """Where exports and working directory are kept between commands."""
    environment: Mapping[str, str]
    write: Callable[[str], None]
    """Takes one line of output."""
    grace_seconds: float = 2.0
    _process: subprocess.Popen[Any] | None = None
    _interrupted: threading.Event = field(default_factory=threading.Event)

    def run(self, command: str, variables: Mapping[str, str]) -> int:
        """Run one command and return its exit code; Interrupted if the build was ended meanwhile."""
        if self._interrupted.is_set():
            raise Interrupted
        self.state.mkdir(parents=True, exist_ok=True)
        process = self.children.start(
            [
                "/bin/sh",
                "-c",
                _STEP,
                "sh",
                str(self.state / "exports"),
                str(self.state / "directory"),
                command,
            ],
            cwd=self.directory,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._process = process
        if self._interrupted.is_set():
            self._end(process, signal.SIGKILL)
        try:
            for line in process.stdout or ():
                self.write(line.rstrip("\n"))
            code: int = process.wait()
        finally:
            self._end(process, signal.SIGKILL)  # what a command left in the background ends with it
            self._process = None
            self.children.forget(process.pid)
        if self._interrupted.is_set():
            raise Interrupted
        return code

    def interrupt(self) -> None:
        """End the running command and let no other begin."""
        self._interrupted.set()
        process = self._process
        if process is None:
            return
        self._end(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(self.grace_seconds)
        self._end(process, signal.SIGKILL)

    @staticmethod
    def _end(process: subprocess.Popen[Any], number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
