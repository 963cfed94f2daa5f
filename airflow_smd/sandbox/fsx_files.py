"""What a file system of the sandbox does with S3: a real directory filled from objects, and back."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError


@dataclass(slots=True, kw_only=True)
class Tally:
    """How far an import, export or release came."""

    total: int = 0
    succeeded: int = 0
    released_bytes: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Path and reason of each file that failed."""

    def report(self) -> bytes:
        """Return the failures as the CSV that FSx writes."""
        text = io.StringIO()
        csv.writer(text).writerows([("path", "reason"), *self.failures])
        return text.getvalue().encode()


def split(uri: str) -> tuple[str, str]:
    """Return bucket and prefix of an S3 URI; a prefix that is not empty ends with `/`."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    return bucket, f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""


class Linked:
    """A directory of a file system and the S3 prefix that it is linked to.

    FSx imports names first and loads a file's data when it is read; here the data is loaded at once, since a
    plain directory cannot fetch it later.

    Args:
        client: a boto3 `s3` client.
        directory: the real directory.
        uri: `s3://bucket/prefix`.
        go_on: asked before each file; False ends the work early.
    """

    def __init__(self, client: Any, directory: Path, uri: str, go_on: Callable[[], bool]) -> None:
        self._client = client
        self._directory = directory
        self._bucket, self._prefix = split(uri)
        self._go_on = go_on

    def import_objects(self, below: str = "") -> Tally:
        """Write every object under the prefix (and `below` it) into the directory; unchanged files stay."""
        tally = Tally()
        for item in self._objects(below):
            if not self._go_on():
                break
            key = item["Key"]
            tally.total += 1
            try:
                self._import(key, item["Size"], item["LastModified"].timestamp())
                tally.succeeded += 1
            except (OSError, ValueError, ClientError) as error:
                tally.failures.append((key, str(error)))
        return tally

    def _objects(self, below: str) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + below):
            yield from page.get("Contents", ())

    def _import(self, key: str, size: int, modified: float) -> None:
        name = key[len(self._prefix) :]
        target = inside(self._directory, name)
        if name.endswith("/") or not name:
            target.mkdir(parents=True, exist_ok=True)
            return
        if target.is_file() and (target.stat().st_size, target.stat().st_mtime) == (size, modified):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        arriving = target.with_name(f".{target.name}.arriving")
        body = self._client.get_object(Bucket=self._bucket, Key=key)["Body"]
        with arriving.open("wb") as file:
            shutil.copyfileobj(body, file, 1024 * 1024)
        os.utime(arriving, (modified, modified))
        arriving.replace(target)

    def export_files(self, below: str = "") -> Tally:
        """Write every file that S3 lacks or has in another state to S3."""
        known = {
            item["Key"]: (item["Size"], item["LastModified"].timestamp()) for item in self._objects(below)
        }
        tally = Tally()
        for path in self._files(below):
            if not self._go_on():
                break
            key = self._prefix + path.relative_to(self._directory).as_posix()
            tally.total += 1
            try:
                facts = path.stat()
                size, modified = known.get(key, (-1, 0.0))
                if facts.st_size != size or facts.st_mtime > modified:
                    self._client.upload_file(str(path), self._bucket, key)
                tally.succeeded += 1
            except (OSError, ClientError) as error:
                tally.failures.append((str(path.relative_to(self._directory)), str(error)))
        return tally

    def release(self, below: str = "") -> Tally:
        """Count the files whose data FSx would drop: those that S3 has. Their bytes stay in the directory."""
        known = {item["Key"]: item["Size"] for item in self._objects(below)}
        tally = Tally()
        for path in self._files(below):
            tally.total += 1
            size = path.stat().st_size
            if known.get(self._prefix + path.relative_to(self._directory).as_posix()) == size:
                tally.succeeded += 1
                tally.released_bytes += size
            else:
                tally.failures.append((str(path.relative_to(self._directory)), "The file is not exported."))
        return tally

    def _files(self, below: str) -> list[Path]:
        start = inside(self._directory, below)
        if start.is_file():
            return [start]
        return [path for path in sorted(start.rglob("*")) if path.is_file() and not path.is_symlink()]


def inside(directory: Path, name: str) -> Path:
    """Return `directory/name`; ValueError if the name leads out of it."""
    target = Path(os.path.normpath(directory / name.lstrip("/")))
    if not target.is_relative_to(directory):
        raise ValueError(f"{name!r} leads out of the directory")
    return target
