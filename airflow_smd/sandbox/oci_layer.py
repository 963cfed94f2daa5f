"""A layer of an image: a directory that overlayfs understands, and the tar that registries keep."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
_OPAQUE_ATTRIBUTE = "trusted.overlay.opaque"
_FAST = 3
"""Level of gzip: a layer is written once and read from the same disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of an image."""

    digest: str
    """Of the compressed tar, as the registry knows it."""
    diff_id: str
    """Of the tar itself, as the image's configuration knows it."""
    size_bytes: int


class _Hashed:
    """Writes through to a file and hashes what went by."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        count: int = self._target.write(data)
        return count

    def flush(self) -> None:
        self._target.flush()


def is_whiteout(path: Path) -> bool:
    """Tell whether overlayfs notes here that a lower layer's file was removed."""
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def pack(directory: Path, blobs: Path) -> Layer:
    """Write a directory as a layer into `blobs` and return it; the same files give the same bytes."""
    blobs.mkdir(parents=True, exist_ok=True)
    unfinished = blobs / f"layer-{os.getpid()}.part"
    with unfinished.open("wb") as file:
        outer = _Hashed(file)
        with gzip.GzipFile("", "wb", _FAST, fileobj=outer, mtime=0) as zipped:
            inner = _Hashed(zipped)
            with tarfile.open(fileobj=inner, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
                _add(tar, directory)
        size = file.tell()
    digest = outer.sha256.hexdigest()
    unfinished.replace(blobs / digest)
    return Layer(digest=f"sha256:{digest}", diff_id=f"sha256:{inner.sha256.hexdigest()}", size_bytes=size)


def _add(tar: tarfile.TarFile, root: Path) -> None:
    seen: dict[int, str] = {}
    for path in _walk(root):
        name = path.relative_to(root).as_posix()
        found = path.lstat()
        member = tarfile.TarInfo(name)
        member.mode, member.mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
        member.uid, member.gid = found.st_uid, found.st_gid
        if is_whiteout(path):
            hidden = tarfile.TarInfo((path.parent / f"{WHITEOUT}{path.name}").relative_to(root).as_posix())
            tar.addfile(hidden)
        elif stat.S_ISDIR(found.st_mode):
            member.type = tarfile.DIRTYPE
            tar.addfile(member)
            if _is_opaque(path):
                tar.addfile(tarfile.TarInfo(f"{name}/{OPAQUE}"))
        elif stat.S_ISLNK(found.st_mode):
            member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
            tar.addfile(member)
        elif stat.S_ISREG(found.st_mode) and found.st_ino in seen:
            member.type, member.linkname = tarfile.LNKTYPE, seen[found.st_ino]
            tar.addfile(member)
        elif stat.S_ISREG(found.st_mode):
            seen[found.st_ino], member.size = name, found.st_size
            with path.open("rb") as content:
                tar.addfile(member, content)


def _walk(root: Path) -> Iterator[Path]:
    for directory, folders, files in os.walk(root):
        folders.sort()
        links = [name for name in folders if (Path(directory) / name).is_symlink()]
        for name in sorted([*files, *folders]):
            yield Path(directory) / name
        for name in links:
            folders.remove(name)


def _is_opaque(directory: Path) -> bool:
    with suppress(OSError, AttributeError):
        return os.getxattr(directory, _OPAQUE_ATTRIBUTE, follow_symlinks=False) == b"y"
    return False


def unpack(blob: Path, directory: Path) -> Path:
    """Unpack a layer into `directory`, for overlayfs, unless it is there; return it.

    Removed files become what overlayfs takes for removed where this user may make that, else they stay.
    """
    if directory.is_dir():
        return directory
    unfinished = directory.with_name(f"{directory.name}.{os.getpid()}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with tarfile.open(blob, "r:*") as tar:
        hidden = [member for member in tar if Path(member.name).name.startswith(WHITEOUT)]
        names = {member.name for member in hidden}

        def wanted(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
            if member.name in names:
                return None
            tarfile.tar_filter(
                member, path
            )  # raises for what would be written outside; clips modes, so unused
            return member

        tar.extractall(unfinished, numeric_owner=True, filter=wanted)
    for member in hidden:
        _hide(unfinished / member.name)
    with suppress(OSError):
        unfinished.rename(directory)  # another thread may have been faster
    return directory


def _hide(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError, AttributeError):
        if path.name == OPAQUE:
            os.setxattr(path.parent, _OPAQUE_ATTRIBUTE, b"y")
        else:
            os.mknod(path.with_name(path.name.removeprefix(WHITEOUT)), stat.S_IFCHR, os.makedev(0, 0))


def manifest(config: bytes, layers: list[Layer]) -> dict[str, Any]:
    """Return the manifest (Docker's schema 2, as `docker push` writes) of a configuration and its layers."""
    kind = "application/vnd.docker"
    return {
        "schemaVersion": 2,
        "mediaType": f"{kind}.distribution.manifest.v2+json",
        "config": {
            "mediaType": f"{kind}.container.image.v1+json",
            "size": len(config),
            "digest": f"sha256:{hashlib.sha256(config).hexdigest()}",
        },
        "layers": [
            {
                "mediaType": f"{kind}.image.rootfs.diff.tar.gzip",
                "size": layer.size_bytes,
                "digest": layer.digest,
            }
            for layer in layers
        ],
    }
