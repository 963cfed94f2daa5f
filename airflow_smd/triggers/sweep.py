"""Waiting for a grace period."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from airflow_smd.triggers.base import WaitTrigger


class GraceTrigger(WaitTrigger):
    """Fires when a grace period is over; whether what was found is still an orphan then, the task looks.

    Args:
        until: Unix time.
        first_seen: Unix time at which each orphan, by its id, was found to be one.
        removed: what AWS said to the removal of what was due before the wait, by its id.
        **wait: the arguments of :class:`WaitTrigger`.
    """

    def __init__(
        self, *, until: float, first_seen: Mapping[str, float], removed: Mapping[str, str], **wait: Any
    ) -> None:
        super().__init__(**wait)
        self.until = until
        self.first_seen = dict(first_seen)
        self.removed = dict(removed)

    def arguments(self) -> dict[str, Any]:
        """Return what tells this trigger from another."""
        return {"until": self.until, "first_seen": self.first_seen, "removed": self.removed}

    def look(self) -> dict[str, Any] | None:
        """Return what was found before, once the time has come."""
        return self.arguments() if time.time() >= self.until else None
