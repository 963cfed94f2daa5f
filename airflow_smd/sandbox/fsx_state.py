"""What the sandbox's FSx remembers, written through to one JSON file."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

PARTS = ("file_systems", "associations", "tasks", "tokens")


class State:
    """File systems, associations, tasks and request tokens, each a dictionary of JSON records by id.

    Hold `lock` while reading or changing a record and call `save` after a change. A record's `answer` is what
    a Describe call returns of it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lock = threading.RLock()
        kept = json.loads(path.read_text()) if path.exists() else {}
        self.file_systems: dict[str, dict[str, Any]] = kept.get("file_systems", {})
        self.associations: dict[str, dict[str, Any]] = kept.get("associations", {})
        self.tasks: dict[str, dict[str, Any]] = kept.get("tasks", {})
        self.tokens: dict[str, dict[str, Any]] = kept.get("tokens", {})

    def save(self) -> None:
        """Write everything; the file is complete at every moment."""
        with self.lock:
            arriving = self._path.with_suffix(".arriving")
            arriving.write_text(json.dumps({part: getattr(self, part) for part in PARTS}))
            arriving.replace(self._path)

    def of(self, part: str, file_system_id: str) -> list[dict[str, Any]]:
        """Return the associations or tasks of one file system, oldest first."""
        records: dict[str, dict[str, Any]] = getattr(self, part)
        return [each for each in records.values() if each["answer"]["FileSystemId"] == file_system_id]
