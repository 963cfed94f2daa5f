"""A connection's billed things, asked for no faster than AWS allows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_smd.aws.sweep import BilledThings
from airflow_smd.hooks.connection import AwsConnection

SECONDS_PER_CALL = 1.0
"""ListTrainingJobs allows two requests a second in the whole account, and we are not alone."""


@dataclass(slots=True, kw_only=True)
class Pace:
    """Sleeps so that calls begin at least `seconds` apart."""

    seconds: float = SECONDS_PER_CALL
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _next: float = -math.inf

    def __call__(self) -> None:
        """Return when the next call may begin."""
        now = self.clock()
        if now < self._next:
            self.sleep(self._next - now)
        self._next = max(now, self._next) + self.seconds


def billed_things(connection: AwsConnection) -> BilledThings:
    """Return what finds and removes the billed things of `connection`."""
    return BilledThings(
        fsx=connection.client("fsx"),
        sagemaker=connection.client("sagemaker"),
        codebuild=connection.client("codebuild"),
        pace=Pace(),
    )
