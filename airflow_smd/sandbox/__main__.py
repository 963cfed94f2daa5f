"""The local AWS endpoint: start it, stop it, look at it, break it on purpose."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from airflow_smd.errors import SmdError
from airflow_smd.sandbox import lifecycle
from airflow_smd.sandbox.capabilities import capabilities
from airflow_smd.sandbox.control import Control
from airflow_smd.sandbox.faults import OPTIONS, FaultKind
from airflow_smd.sandbox.runtime import Settings

CHOICES = {"hosts": ("auto", "namespace", "process"), "images": ("auto", "buildah", "python")}
SETTING_HELP = {
    "region": "the Region that it plays",
    "hosts": "how a training host is kept apart from the others",
    "images": "what builds images",
    "container_python": "the Python that stands for the one inside every image",
    "file_system_seconds": "how long a file system is CREATING",
    "stop_grace_seconds": "how long a stopped job may save itself",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a refusal is printed without a traceback and ends with 1."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except lifecycle.HomeIsTaken as taken:
        sys.stderr.write(f"airflow-smd sandbox {arguments.command}: {taken}\n")
        return lifecycle.HOME_IS_TAKEN
    except SmdError as error:
        sys.stderr.write(f"airflow-smd sandbox {arguments.command}: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="airflow-smd sandbox", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, run, summary in (
        ("up", _up, "start it in the background, unless it runs, and print how to reach it"),
        ("serve", _serve, "answer in this process until SIGTERM or Ctrl-C"),
        ("down", _down, "stop it with everything that it started; its state stays"),
        ("status", _status, "tell whether it runs and what this machine lets it do"),
        ("fault", _fault, "make calls or jobs fail on purpose"),
        ("calls", _calls, "list the AWS calls that it answered"),
    ):
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        command.set_defaults(run=run)
        home = lifecycle.default_home()
        command.add_argument("--home", type=Path, default=home, help=f"its state (default: {home})")
        if name in ("up", "serve"):
            _add_settings(command)
        if name in ("up", "status", "calls"):
            command.add_argument("--json", action="store_true", help="print JSON")
        if name == "fault":
            _add_fault_arguments(command)
    return parser


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--port", type=int, help="on 127.0.0.1 (default: the one before, or a free one)")
    for field in fields(Settings):
        if field.name == "home" or field.default is MISSING:
            continue
        command.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=type(field.default) if isinstance(field.default, (int, float)) else str,
            default=field.default,
            choices=CHOICES.get(field.name),
            help=f"{SETTING_HELP.get(field.name, field.name)} (default: {field.default})",
        )


def _add_fault_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("add", "list", "clear"))
    command.add_argument("kind", nargs="?", choices=tuple(FaultKind), help="what to add")
    command.add_argument("--service", default="", help="sagemaker, s3, ... (default: any)")
    command.add_argument("--operation", default="", help="CreateTrainingJob, 'Describe*', ... (default: any)")
    command.add_argument(
        "--parameter", action="append", default=[], metavar="NAME=VALUE", help="only requests with this value"
    )
    command.add_argument("--count", default="1", help="how many times, or unlimited (default: 1)")
    command.add_argument("--after", default="0", help="how many pass unharmed first (default: 0)")
    options = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in OPTIONS.items() if names)
    command.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help=f"of the kind ({options})"
    )


def _settings(arguments: argparse.Namespace) -> Settings:
    given = {field.name: getattr(arguments, field.name) for field in fields(Settings)}
    home = given["home"].expanduser().resolve()
    return lifecycle.settings_from_json({**given, "home": home})


def _up(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    found = lifecycle.up(settings, arguments.port)
    if arguments.json:
        _print(json.dumps({"endpoint_url": found.endpoint_url, "environment": found.environment()}))
        return 0
    _print(f"# The sandbox of {settings.home} answers at {found.endpoint_url}. To use it in this shell:")
    for name, value in found.environment().items():
        _print(f"export {name}={shlex.quote(value)}")
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    from airflow_smd.sandbox.server import serve

    return serve(_settings(arguments), arguments.port)


def _down(arguments: argparse.Namespace) -> int:
    home = arguments.home.expanduser().resolve()
    was_running = lifecycle.down(home)
    _print(
        f"The sandbox of {home} {'is stopped' if was_running else 'was not running'}; its state stays there."
    )
    return 0


def _status(arguments: argparse.Namespace) -> int:
    home = arguments.home.expanduser().resolve()
    found = lifecycle.running(home)
    can = capabilities(lifecycle.settings_from_json({**(found.settings if found else {}), "home": home}))
    if arguments.json:
        status = {
            "running": found is not None,
            "endpoint_url": found and found.endpoint_url,
            "pid": found and found.process.pid,
            "environment": found and found.environment(),
            "capabilities": [capability.as_json() for capability in can],
        }
        _print(json.dumps(status))
    else:
        where = f"answers at {found.endpoint_url} (pid {found.process.pid})" if found else "is not running"
        _print("\n".join([f"The sandbox of {home} {where}.", *map(str, can)]))
    return 0 if found else 3


def _fault(arguments: argparse.Namespace) -> int:
    control = _control(arguments.home)
    if arguments.action == "clear":
        _print(f"Disarmed {control.clear_faults()}.")
    elif arguments.action == "list":
        _print(json.dumps(control.faults(), indent=1))
    elif not arguments.kind:
        raise SmdError(f"Say what to add: one of {', '.join(FaultKind)}.")
    else:
        options: dict[str, Any] = dict(map(_name_and_value, arguments.option))
        fault_id = control.fault(
            arguments.kind,
            service=arguments.service,
            operation=arguments.operation,
            parameters=dict(map(_name_and_value, arguments.parameter)),
            count=arguments.count,
            after=arguments.after,
            **options,
        )
        _print(f"Armed {fault_id}.")
    return 0


def _calls(arguments: argparse.Namespace) -> int:
    calls = _control(arguments.home).calls()
    if arguments.json:
        _print(json.dumps(calls))
    for call in [] if arguments.json else calls:
        _print(
            f"{call['number']:6} {call['status']} {call['service']}.{call['operation']} {call['fault'] or ''}"
        )
    return 0


def _control(home: Path) -> Control:
    found = lifecycle.running(home.expanduser().resolve())
    if not found:
        raise SmdError(f"The sandbox of {home} is not running: start it with `airflow-smd sandbox up`.")
    return Control(found.endpoint_url)


def _name_and_value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise SmdError(f"{text!r} is not NAME=VALUE.")
    return name, value


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
