"""airflow-smd sandbox: hand everything over to the sandbox's own program."""

from __future__ import annotations

import argparse
import subprocess
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take whatever comes: `python -m airflow_smd.sandbox --help` tells."""
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="up | down | status | ...")


def run(arguments: argparse.Namespace) -> int:
    """Run the sandbox as a program of its own, so that this command never imports it."""
    return subprocess.run(
        [sys.executable, "-m", "airflow_smd.sandbox", *arguments.rest], check=False
    ).returncode
