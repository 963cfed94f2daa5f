"""python -m airflow_smd.sandbox: the local AWS endpoint."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from airflow_smd.errors import SmdError
from airflow_smd.sandbox.runtime import Settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="airflow-smd sandbox", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="answer in this process until it is told to stop")
    serve.add_argument("--home", type=Path, required=True)
    serve.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args(argv)
    try:
        from airflow_smd.sandbox.server import serve as serve_now

        return serve_now(Settings(home=arguments.home.resolve()), arguments.port)
    except SmdError as error:
        sys.stderr.write(f"airflow-smd sandbox: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
