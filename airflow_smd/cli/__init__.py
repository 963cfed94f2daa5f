"""The command `airflow-smd`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from airflow_smd import __version__
from airflow_smd.cli import sandbox
from airflow_smd.errors import SmdError

COMMANDS = {
    "demo": "run the retraining DAG on the sandbox, from data to report",
    "sandbox": "start, stop or look at the local AWS endpoint",
    "size": "size a file system for a data set",
    "lint": "check a training job before it costs anything",
    "compile": "print the CreateTrainingJob request of a training job",
}
"""Each but `sandbox` is a module of this package with `add_arguments(parser)` and `run(arguments) -> int`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a refused input is printed without a traceback and ends with 1."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv[:1] == ["sandbox"]:  # a program of its own, with its own help
        return sandbox.hand_over(argv[1:])
    parser = argparse.ArgumentParser(
        prog="airflow-smd", description="Distributed training on Amazon SageMaker: try, check, size, compile."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name in argv[:1]:
            import_module(f"airflow_smd.cli.{name}").add_arguments(command)
    arguments = parser.parse_args(argv)
    try:
        code: int = import_module(f"airflow_smd.cli.{arguments.command}").run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SmdError as error:
        print(f"airflow-smd {arguments.command}: {error}", file=sys.stderr)
        return 1
    return code
