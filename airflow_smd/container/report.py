"""Say where a training is: one line that people, SageMaker's metric regexes and Airflow's task log all read.

The line is `smd: ` and then `name=number` pairs, one blank apart, on a line of its own on standard output:

    smd: epoch=3 step=120 steps=690 loss=0.2513 samples_per_second=10312.4 accuracy=0.9511 seconds=4.21

`epoch` counts from 1. `step` is the number of optimiser steps done so far in the whole run and `steps` the
number it will take, so that `step / steps` is the part that is done. `samples_per_second` is the sum over all
ranks. `seconds` is added by this module: the seconds since the process imported it, by a clock that never
jumps. Everything else is the script's own. Let one rank report, or every line counts once per rank.

Copy this file into a training image, or import it: it needs Python 3.9 and nothing else.
"""

from __future__ import annotations

import re
import sys
import time
from typing import Any

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_STARTED = time.monotonic()


def report(
    *,
    epoch: int | None = None,
    step: int | None = None,
    steps: int | None = None,
    loss: float | None = None,
    samples_per_second: float | None = None,
    **more: float | None,
) -> None:
    """Print one line with the given numbers, at once; what is None is left out.

    Numbers of numpy and PyTorch are welcome. ValueError names what cannot be a metric.
    """
    numbers: dict[str, Any] = {
        "epoch": epoch,
        "step": step,
        "steps": steps,
        "loss": loss,
        "samples_per_second": samples_per_second,
        **more,
        "seconds": time.monotonic() - _STARTED,
    }
    pairs = [f"{name}={_text(name, number)}" for name, number in numbers.items() if number is not None]
    # One write, so that the lines of several processes on one pipe do not mix.
    sys.stdout.write(f"smd: {' '.join(pairs)}\n")
    sys.stdout.flush()


def _text(name: str, number: Any) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"report({name}=…): a metric's name is lower-case letters, digits and underscores")
    if isinstance(number, int):
        return str(int(number))
    try:
        return f"{float(number):.6g}"
    except (TypeError, ValueError):
        raise ValueError(f"report({name}={number!r}): a metric is a number") from None
