"""COPY: what its sources mean in the context, and where its target lies in the layers below."""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_smd.domain.dockerfile import ignore_patterns, ignored
from airflow_smd.sandbox.oci_layer import Layer, is_whiteout
from airflow_smd.sandbox.oci_store import BuildError, Store

COPY_TIME = 315_532_800
"""1980-01-01, what a zip can say at least: copied files have no other time, so that layers are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFile:
    """One file on its way into the image."""

    source: Path
    target: str
    """Absolute path in the image, links not yet followed."""
    mode: int

    def fingerprint(self) -> tuple[str, int, str]:
        """Return what makes this copy differ from another."""
        return self.target, self.mode, hashlib.sha256(self.source.read_bytes()).hexdigest()


class Context:
    """The build context on disk, without what `.dockerignore` leaves out."""

    def __init__(self, directory: Path) -> None:
        self._root = directory.resolve()
        rules = self._root / ".dockerignore"
        self._ignored = ignore_patterns(rules.read_text()) if rules.is_file() else ()

    def copied(
        self, sources: Sequence[str], target: str, working_directory: str, chmod: str
    ) -> list[CopiedFile]:
        """Return the files that `COPY sources target` copies; BuildError if a source is not there."""
        place = os.path.normpath(Path(working_directory) / target)
        chosen = [found for source in sources for found in self._matches(source)]
        into = len(chosen) > 1 or target.endswith("/") or target == "."
        files: list[CopiedFile] = []
        for path in chosen:
            for source in [path] if path.is_file() else self._inside(path):
                name = path.name if source == path else source.relative_to(path).as_posix()
                whole = f"{place}/{name}" if into or source != path else place
                mode = int(chmod, 8) if chmod else 0o755 if source.stat().st_mode & 0o100 else 0o644
                files.append(CopiedFile(source=source, target=whole, mode=mode))
        return files

    def _matches(self, source: str) -> list[Path]:
        if "://" in source:
            raise BuildError(f"ADD {source}: this builder fetches nothing; fetch it in a RUN step")
        relative = os.path.normpath(source.lstrip("/"))
        if relative.startswith(".."):
            raise BuildError(f"COPY failed: forbidden path outside the build context: {source}")
        found = [Path(path) for path in sorted(glob.glob(str(self._root / relative)))]  # noqa: PTH207
        found = [path for path in found if self._takes(path)]
        if not found:
            raise BuildError(
                f"COPY failed: file not found in build context or excluded by .dockerignore: stat {source}: "
                "file does not exist"
            )
        return found

    def _inside(self, directory: Path) -> list[Path]:
        return sorted(path for path in directory.rglob("*") if path.is_file() and self._takes(path))

    def _takes(self, path: Path) -> bool:
        return path == self._root or not ignored(path.relative_to(self._root).as_posix(), self._ignored)


class Tree:
    """What is seen in an image before a step: its layers, over the machine's own root or over nothing."""

    def __init__(self, store: Store, layers: Sequence[Layer], on_host: bool) -> None:
        self._directories = [store.directory(layer) for layer in reversed(layers)]
        self._on_host = on_host

    def add(self, root: Path, files: Sequence[CopiedFile]) -> None:
        """Write files into the directory `root` of a new layer."""
        for file in files:
            where = root / self._real(file.target).lstrip("/")
            self._make_parents(root, where)
            shutil.copyfile(file.source, where)
            where.chmod(file.mode)
            os.utime(where, (COPY_TIME, COPY_TIME))
        for directory in [root, *(path for path in root.rglob("*") if path.is_dir())]:
            os.utime(directory, (COPY_TIME, COPY_TIME))

    def _real(self, path: str) -> str:
        """Return `path` with the links below followed, so that no link is covered by a directory."""
        real = Path("/")
        for part in Path(path).parent.parts[1:]:
            real = real / part
            for _ in range(40):  # as many links as Linux follows
                below = self._below(real)
                if below is None or not below.is_symlink():
                    break
                real = Path(os.path.normpath(real.parent / below.readlink()))
        return str(real / Path(path).name)

    def _below(self, path: Path) -> Path | None:
        for directory in self._directories:
            candidate = directory / path.relative_to("/")
            if os.path.lexists(candidate):
                return None if is_whiteout(candidate) else candidate
        return path if self._on_host and os.path.lexists(path) else None

    def _make_parents(self, root: Path, where: Path) -> None:
        """Make the directories above a file with the modes they have below, since the upper one counts."""
        inside = where.parent.relative_to(root)
        for directory in [*reversed(inside.parents), inside]:
            made = root / directory
            if made.is_dir():
                continue
            made.mkdir()
            below = self._below(Path("/") / directory)
            made.chmod(stat.S_IMODE(below.stat().st_mode) if below else 0o755)
