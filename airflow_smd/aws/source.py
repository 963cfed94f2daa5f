"""The training code in S3, under a name made from its content."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from airflow_smd.aws.addresses import split_s3_uri
from airflow_smd.errors import Problem

PACKAGE = Path(__file__).parents[1]
OURS = ("__init__.py", "container")
"""What of this package a training script may import: `from airflow_smd.container import report`."""
LEFT_OUT = ("__pycache__", ".git", ".venv", ".DS_Store")


def local_source(job: Mapping[str, Any]) -> tuple[Path | None, list[Problem]]:
    """Return what of this machine's files the job runs, and what is missing of them.

    As in the SDK: the folder `source_dir` with `entry_point` in it, or the file `entry_point` alone. None
    where the code lies in S3 or in the image.
    """
    source_dir, entry_point = str(job.get("source_dir") or ""), str(job.get("entry_point") or "")
    if not entry_point or (source_dir or entry_point).startswith("s3://"):
        return None, []
    source = Path(source_dir or entry_point)
    if source_dir and not source.is_dir():
        field, value, message = "job.source_dir", source_dir, "There is no such folder on this worker."
    elif not (source / entry_point if source_dir else source).is_file():
        where = f" in {source_dir}" if source_dir else " on this worker"
        field, value, message = "job.entry_point", entry_point, f"There is no such file{where}."
    else:
        return source, []
    remedy = "Write a path beside the DAG file: str(Path(__file__).parent / 'code')."
    return None, [Problem(rule="source-missing", field=field, value=value, message=message, remedy=remedy)]


def pack(source: Path) -> bytes:
    """Return a folder or one file, and our container modules, as tar; the same files give the same bytes."""
    root = source if source.is_dir() else source.parent
    files = {path.relative_to(root).as_posix(): path for path in _files(source)}
    for name in OURS:
        for path in _files(PACKAGE / name):
            files.setdefault(f"airflow_smd/{path.relative_to(PACKAGE).as_posix()}", path)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, path in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as content:
                tar.addfile(member, content)
    return packed.getvalue()


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    return [
        path
        for path in sorted(root.rglob("*"))
        if path.is_file() and not any(part in LEFT_OUT for part in path.relative_to(root).parts)
    ]


class SourceStore:
    """Keeps packed training code under a prefix of S3.

    Args:
        client: a boto3 `s3` client.
        work_uri: `s3://bucket/prefix` that the code is kept under.
    """

    def __init__(self, client: Any, work_uri: str) -> None:
        self._client = client
        self._bucket, self._prefix = split_s3_uri(work_uri)

    def put(self, source: Path) -> str:
        """Upload the code unless it is there already and return its S3 URI."""
        packed = pack(source)
        key = f"{self._prefix}source/{hashlib.sha256(packed).hexdigest()}/sourcedir.tar.gz"
        if not self._has(key):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=gzip.compress(packed, mtime=0))
        return f"s3://{self._bucket}/{key}"

    def _has(self, key: str) -> bool:
        try:
            self._client.head_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return False
            raise
        return True
