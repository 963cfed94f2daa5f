"""Waiting for a file system: until it is there, until its link is filled, until it is gone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from airflow_smd.aws.lustre import FileSystems
from airflow_smd.domain.lustre.lifecycle import FileSystem, Link, Readiness, readiness
from airflow_smd.hooks.lustre import LustreHook
from airflow_smd.triggers.base import WaitTrigger


class FileSystemTrigger(WaitTrigger):
    """Fires when a file system is ready, or never will be.

    Args:
        file_system_id: the file system.
        association_id: wait for this link to S3 instead.
        **wait: the arguments of :class:`WaitTrigger`.
    """

    def __init__(self, *, file_system_id: str, association_id: str | None = None, **wait: Any) -> None:
        super().__init__(**wait)
        self.file_system_id = file_system_id
        self.association_id = association_id
        self._said = ""

    def arguments(self) -> dict[str, Any]:
        """Return what tells this trigger from another."""
        return {"file_system_id": self.file_system_id, "association_id": self.association_id}

    @cached_property
    def file_systems(self) -> FileSystems:
        """Return the file systems of our connection."""
        return LustreHook(self.aws).file_systems

    def look(self) -> dict[str, Any] | None:
        """Return the state when it is the last one."""
        name = self.association_id or self.file_system_id
        found: FileSystem | Link | None
        if self.association_id:
            found = self.file_systems.look_link(self.association_id)
        else:
            found = self.file_systems.look(self.file_system_id)
        state = str(found.lifecycle) if found else "gone"
        if state != self._said:
            self.log.info("%s is %s", name, state)
            self._said = state
        if found and readiness(found.lifecycle) is Readiness.PENDING:
            return None
        ready = found is not None and readiness(found.lifecycle) is Readiness.READY
        return {
            "file_system_id": self.file_system_id,
            "name": name,
            "ready": ready,
            "state": state,
            "failure": found.failure if found else "",
        }

    def stop(self) -> None:
        """Delete the file system: a setup task that is killed has no teardown that would."""
        self.file_systems.remove(self.file_system_id)


class DeletionTrigger(WaitTrigger):
    """Fires when file systems are gone; asks again for what FSx refused: a task or a creation not yet over.

    Args:
        file_system_ids: the file systems.
        **wait: the arguments of :class:`WaitTrigger`.
    """

    def __init__(self, *, file_system_ids: Sequence[str], **wait: Any) -> None:
        super().__init__(**wait)
        self.file_system_ids = list(file_system_ids)
        self._said: dict[str, str] = {}

    def arguments(self) -> dict[str, Any]:
        """Return what tells this trigger from another."""
        return {"file_system_ids": self.file_system_ids}

    @cached_property
    def file_systems(self) -> FileSystems:
        """Return the file systems of our connection."""
        return LustreHook(self.aws).file_systems

    def look(self) -> dict[str, Any] | None:
        """Return the ids when all of them are gone."""
        left = {}
        for file_system_id in self.file_system_ids:
            state = self.file_systems.remove(file_system_id)
            if state is not None:
                left[file_system_id] = state
            if state != self._said.get(file_system_id):
                self.log.info("%s: %s", file_system_id, state or "gone")
                self._said[file_system_id] = state or "gone"
        return None if left else {"deleted": self.file_system_ids}
