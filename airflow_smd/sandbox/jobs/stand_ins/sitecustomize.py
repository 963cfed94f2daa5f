"""Loaded by every Python in a sandbox host, before anything else.

Two things, both only for the sandbox: modules that AWS's images have and this machine has not are offered
last on the path, so that the real ones win; and the 30 s pauses that AWS's toolkit makes at the end of an
MPI job (sagemaker-training 5.1.4, mpi.py and smdataparallel.py) become half a second.
"""

import pathlib
import sys
import time
from typing import Any

_FIXED_PAUSE_SECONDS, _PAUSE_SECONDS = 30, 0.5
_PAUSING_MODULES = ("sagemaker_training.mpi", "sagemaker_training.smdataparallel")
_sleep = time.sleep


def _shorter_sleep(seconds: Any) -> None:
    if seconds == _FIXED_PAUSE_SECONDS and sys._getframe(1).f_globals.get("__name__") in _PAUSING_MODULES:
        seconds = _PAUSE_SECONDS
    _sleep(seconds)


time.sleep = _shorter_sleep
sys.path.append(str(pathlib.Path(__file__).parent / "last"))
