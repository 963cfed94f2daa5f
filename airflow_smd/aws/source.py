"""The training code in S3, under a name made from its content."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from airflow_smd.aws.addresses import split_s3_uri

PACKAGE = Path(__file__).parents[1]
OURS = ("__init__.py", "container")
"""What of this package a training script may import: `from airflow_smd.container import report`."""
LEFT_OUT = ("__pycache__", ".git", ".venv", ".DS_Store")


def pack(source_dir: Path) -> bytes:
    """Return `source_dir` and our container modules as tar.gz; the same files give the same bytes."""
    files = {path.relative_to(source_dir).as_posix(): path for path in _files(source_dir)}
    for name in OURS:
        for path in _files(PACKAGE / name):
            files.setdefault(f"airflow_smd/{path.relative_to(PACKAGE).as_posix()}", path)
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|") as tar,
    ):
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

    def put(self, source_dir: Path) -> str:
        """Upload the code unless it is there already and return its S3 URI."""
        packed = pack(source_dir)
        key = f"{self._prefix}source/{hashlib.sha256(packed).hexdigest()}/sourcedir.tar.gz"
        if not self._has(key):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=packed)
        return f"s3://{self._bucket}/{key}"

    def _has(self, key: str) -> bool:
        try:
            self._client.head_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return False
            raise
        return True
