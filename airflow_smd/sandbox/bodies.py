"""The bytes of S3 objects, each written to a file once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any


class StoredBody:
    """An S3 object's bytes in a file; takes the place of moto's temporary file once they are kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self.closed = False

    @classmethod
    def gone(cls) -> StoredBody:
        """Return what a deleted object has."""
        body = cls(Path())
        body.close()
        return body

    def seek(self, position: int) -> int:
        """Go to a position from the start."""
        self._position = position
        return position

    def read(self, size: int = -1) -> bytes:
        """Return the bytes from here on; ValueError after `close`, as a file does."""
        if self.closed:
            raise ValueError("read of closed body")
        with self.path.open("rb") as file:
            file.seek(self._position)
            content = file.read(size)
        self._position += len(content)
        return content

    def close(self) -> None:
        """Refuse reads from now on; the file goes with the next snapshot."""
        self.closed = True


class Bodies:
    """The files of S3 objects. An object's bytes never change, so each is written once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._kept = {path.name for path in directory.iterdir()}

    def path(self, name: str) -> Path:
        """Return where a body lies."""
        return self._directory / name

    def keep(self, key: Any) -> StoredBody:
        """Write a moto key's bytes to a file unless they are in one, and let the key read them there."""
        with key.lock:
            buffer = key._value_buffer
            if isinstance(buffer, StoredBody):
                return buffer
            name = uuid.uuid4().hex
            with self.path(name).open("wb") as file:
                buffer.seek(0)
                while chunk := buffer.read(1 << 20):
                    file.write(chunk)
            key._value_buffer = stored = StoredBody(self.path(name))
            self._kept.add(name)
        buffer.close()
        return stored

    def keep_all(self) -> None:
        """Write what is not yet in a file; called while requests go on, to make the snapshot itself short."""
        for key in _s3_keys():
            # moto reads the bytes without the lock until it has computed the ETag.
            if key._etag is not None and not key.disposed:
                with suppress(ValueError):  # deleted at this moment
                    self.keep(key)

    def forget_others(self, referenced: set[str]) -> None:
        """Delete the files that the snapshot on disk does not name."""
        for name in self._kept - referenced:
            self.path(name).unlink(missing_ok=True)
        self._kept &= referenced


def _s3_keys() -> Iterator[Any]:
    """Return every object, version and part of an upload that moto holds."""
    from moto.s3.models import FakeKey, s3_backends

    for _, _, backend in list(s3_backends.iter_backends()):
        for bucket in list(backend.buckets.values()):
            for versions in list(dict.values(bucket.keys)):
                yield from (version for version in list(versions) if isinstance(version, FakeKey))
            for upload in list(bucket.multiparts.values()):
                yield from list(upload.parts.values())
