"""Many may change the state at once, or one may copy it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Lets changes run side by side and a copy run alone; counts the changes."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0
        self._copying = False
        self._here = threading.local()
        self.changes = 0
        """How many changes there were; a copy is up to date while this stands still."""

    @contextmanager
    def changing(self, *, changes: bool = True) -> Iterator[None]:
        """Wait while a copy is made, then keep the next one waiting; `changes=False` for a mere look.

        A thread that is inside may enter again.
        """
        depth = getattr(self._here, "depth", 0)
        with self._condition:
            self._condition.wait_for(lambda: depth or not self._copying)
            self._inside += not depth
            self.changes += changes
        self._here.depth = depth + 1
        try:
            yield
        finally:
            self._here.depth = depth
            with self._condition:
                self._inside -= not depth
                self.changes += changes
                self._condition.notify_all()

    @contextmanager
    def copying(self, timeout_seconds: float) -> Iterator[bool]:
        """Keep others out and wait for those inside; yields False if they did not leave in time."""
        with self._condition:
            self._copying = True
            alone = self._condition.wait_for(lambda: self._inside == 0, timeout_seconds)
        try:
            yield alone
        finally:
            with self._condition:
                self._copying = False
                self._condition.notify_all()
