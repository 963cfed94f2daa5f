"""airflow-smd sandbox: hand everything over to the sandbox's own program."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence


def hand_over(argv: Sequence[str]) -> int:
    """Run the sandbox as a program of its own, so that this command never imports it."""
    return subprocess.run([sys.executable, "-m", "airflow_smd.sandbox", *argv], check=False).returncode
