"""Waiting for something on AWS: look, wait, fire once."""

from __future__ import annotations

import asyncio
import random
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_smd.hooks.connection import AwsConnection

T = TypeVar("T")
LONGEST_PAUSE_SECONDS = 300.0
SHOWN_AGAIN_SECONDS = 300.0
"""How far back a job's log is shown when a triggerer takes over: longer than Airflow needs to notice that
another one died, and short enough that little is shown twice."""


async def in_thread(function: Callable[[], T], executor: ThreadPoolExecutor | None = None) -> T:
    """Call `function` in a thread of the event loop's, or of `executor`.

    Not `asyncio.to_thread`: what Airflow 3.1 is asked there, a connection for instance, does not go through
    the triggerer's own event loop, and answers that cross end the triggerer.
    """
    return await sync_to_async(function, thread_sensitive=False, executor=executor)()


class WaitTrigger(BaseTrigger):
    """Look at one thing on AWS until it is over, from a thread, and fire one event.

    An error while looking (throttling, network, credentials that expired) never ends the wait: the thing
    goes on billing whether we can see it or not. We look again after a longer pause. The first look comes
    after a pause too: who defers has just looked, and Airflow takes a task that resumes before its
    worker has ended for one that was killed.

    Args:
        connection: the arguments of :class:`AwsConnection`.
        poll_seconds: pause between two looks, in seconds.
        deadline: Unix time after which the event says `timeout`; None waits as long as the thing may live.
    """

    def __init__(
        self, *, connection: Mapping[str, Any], poll_seconds: float = 30.0, deadline: float | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.connection = dict(connection)
        self.poll_seconds = poll_seconds
        self.deadline = deadline

    @abstractmethod
    def look(self) -> dict[str, Any] | None:
        """Return the event's payload (JSON) when the wait is over, else None. Runs in a thread."""

    def stop(self) -> None:
        """End what we pay for; must be idempotent. Runs in a thread."""

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments beyond the three of this class."""
        return {}

    @property
    def aws(self) -> AwsConnection:
        """Return the connection as a value."""
        return AwsConnection(**self.connection)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and arguments from which the triggerer rebuilds this trigger."""
        own = {"connection": self.connection, "poll_seconds": self.poll_seconds, "deadline": self.deadline}
        return f"{type(self).__module__}.{type(self).__qualname__}", own | self.arguments()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: what `look` returned, or `timeout: true` with our own arguments."""
        pause = self.poll_seconds
        while True:
            # jitter, so that a thousand triggers started together do not look together
            await asyncio.sleep(pause * random.uniform(0.9, 1.1))  # noqa: S311
            try:
                payload = await in_thread(self.look)
                pause = self.poll_seconds
            except Exception as error:
                payload = None
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
                self.log.warning("Cannot look (%s), trying again in about %.0f s", error, pause)
            if payload is not None:
                yield TriggerEvent(payload)
                return
            if self.deadline is not None and time.time() >= self.deadline:
                yield TriggerEvent({"timeout": True} | self.arguments())
                return

    async def on_kill(self) -> None:
        """End what we pay for when a person marks the deferred task failed or clears it (Airflow 3.3)."""
        await in_thread(self.stop)
