"""Data on its way between S3, file systems and a host's directories."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_smd.sandbox.jobs.cloud import Cloud, files_under, join_uri, split_uri


@dataclass(frozen=True, slots=True)
class S3Object:
    """An object and the place it gets below its channel's directory."""

    bucket: str
    key: str
    path: str


class NoObjects(LookupError):
    """Nothing lies where an input should be."""


def objects_of(cloud: Cloud, uri: str, data_type: str) -> list[S3Object]:
    """Return the objects that an S3 data source means, in S3's order; NoObjects if there are none."""
    if data_type == "ManifestFile":
        found = _manifest(cloud, uri)
    else:
        bucket, prefix = split_uri(uri)
        found = [S3Object(bucket, key, _below(prefix, key)) for key in cloud.keys(uri)]
    if not found:
        raise NoObjects(uri)
    return found


def _below(prefix: str, key: str) -> str:
    """Return a key's path in the channel: relative to the prefix if that is a folder, else to its folder."""
    folder = prefix if prefix.endswith("/") or not prefix else prefix + "/"
    if key.startswith(folder):
        return key[len(folder) :]
    return key[len(prefix.rpartition("/")[0]) :].lstrip("/")


def _manifest(cloud: Cloud, uri: str) -> list[S3Object]:
    """Read SageMaker's manifest: a JSON list of one `{"prefix": ...}` and keys relative to it."""
    bucket, key = split_uri(uri)
    try:
        first, *rest = json.loads(cloud.read(bucket, key))
        its_bucket, prefix = split_uri(first["prefix"])
    except (KeyError, ValueError, TypeError) as error:
        raise NoObjects(f"{uri} (not a manifest: {error})") from error
    if not rest:
        return [S3Object(its_bucket, found, _below(prefix, found)) for found in cloud.keys(first["prefix"])]
    return [S3Object(its_bucket, prefix + name, name) for name in rest]


def share(
    objects: Sequence[S3Object], distribution: str | None, position: int, count: int
) -> Sequence[S3Object]:
    """Return the part of one of `count` hosts: all of it, or every count-th object with ShardedByS3Key."""
    return objects[position::count] if distribution == "ShardedByS3Key" else objects


def download(cloud: Cloud, objects: Sequence[S3Object], target: Path) -> None:
    """Write objects below a directory; a path that would leave it is refused."""
    target.mkdir(parents=True, exist_ok=True)
    root = target.resolve()
    for item in objects:
        place = root / item.path
        if not place.resolve().is_relative_to(root):
            raise NoObjects(f"s3://{item.bucket}/{item.key} would be written outside its directory")
        cloud.download(item.bucket, item.key, place)


@dataclass(slots=True)
class Mirror:
    """Uploads what has changed in a directory since the last time; the first look sees all as changed."""

    cloud: Cloud
    directory: Path
    uri: str
    _seen: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def fetch(self) -> None:
        """Bring what lies at the URI into the directory; it counts as unchanged."""
        with suppress(NoObjects):
            download(
                self.cloud, objects_of(self.cloud, self.uri.rstrip("/") + "/", "S3Prefix"), self.directory
            )
        for path in files_under(self.directory):
            self._seen[path] = _state(path)

    def push(self, *, settled: bool = True) -> None:
        """Upload files that are new or changed; with `settled` False only those not written for a second."""
        import time

        for path in files_under(self.directory):
            with suppress(FileNotFoundError):
                state = _state(path)
                if self._seen.get(path) == state or (not settled and time.time() - path.stat().st_mtime < 1):
                    continue
                self.cloud.upload(path, join_uri(self.uri, path.relative_to(self.directory).as_posix()))
                self._seen[path] = state


def _state(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def upload_artifacts(
    cloud: Cloud, directories: Sequence[Path], uri: str, name: str, scratch: Path, *, compressed: bool
) -> bool:
    """Upload the union of all hosts' directories as `name`.tar.gz or as files; False if there is nothing.

    Where two hosts wrote the same path, the first host's file is taken.
    """
    found: dict[str, Path] = {}
    for directory in directories:
        for path in files_under(directory):
            found.setdefault(path.relative_to(directory).as_posix(), path)
    if not found:
        return False
    if not compressed:
        for relative, path in found.items():
            cloud.upload(path, join_uri(uri, name, relative))
        return True
    archive = scratch / f"{name}.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for relative, path in sorted(found.items()):
            tar.add(path, arcname=relative)
    cloud.upload(archive, join_uri(uri, f"{name}.tar.gz"))
    return True


def s3_source(channel: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a channel's S3 source if it has one."""
    source: Mapping[str, Any] | None = channel["DataSource"].get("S3DataSource")
    return source
