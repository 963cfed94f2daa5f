"""The services that a job touches, reached inside the sandbox: faults of calls do not hit a job's agents."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.cloudwatch.models import cloudwatch_backends
from moto.ecr.models import ecr_backends
from moto.iam.models import iam_backends
from moto.logs.exceptions import ResourceAlreadyExistsException
from moto.logs.models import logs_backends
from moto.s3.exceptions import MissingBucket
from moto.s3.models import FakeDeleteMarker, s3_backends

from airflow_smd.sandbox.runtime import ACCOUNT_ID, Runtime


class Cloud:
    """S3, CloudWatch, IAM and ECR of one sandbox."""

    def __init__(self, runtime: Runtime) -> None:
        self._changing = runtime.changing
        self._region = runtime.settings.region
        self._s3 = s3_backends[ACCOUNT_ID]["aws"]
        self._logs = logs_backends[ACCOUNT_ID][self._region]
        self._metrics = cloudwatch_backends[ACCOUNT_ID][self._region]

    def keys(self, uri: str) -> list[str]:
        """Return the keys under an S3 URI, in S3's order, without folder markers; [] without a bucket."""
        bucket, prefix = split_uri(uri)
        try:
            objects = dict(self._s3.get_bucket(bucket).keys.items())
        except MissingBucket:
            return []
        return sorted(
            key
            for key, value in objects.items()
            if key.startswith(prefix) and not key.endswith("/") and not isinstance(value, FakeDeleteMarker)
        )

    def bucket_exists(self, uri: str) -> bool:
        """Tell whether the bucket of an S3 URI exists."""
        with suppress(MissingBucket):
            self._s3.get_bucket(split_uri(uri)[0])
            return True
        return False

    def read(self, bucket: str, key: str) -> bytes:
        """Return an object's content; KeyError if there is none."""
        found = self._s3.get_object(bucket, key)
        if found is None or isinstance(found, FakeDeleteMarker):
            raise KeyError(f"s3://{bucket}/{key}")
        content: bytes = found.value
        return content

    def download(self, bucket: str, key: str, target: Path) -> None:
        """Write an object to a file."""
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.read(bucket, key))

    def upload(self, source: Path, uri: str) -> None:
        """Put a file at an S3 URI; if the bucket has gone, there is nowhere to say so."""
        bucket, key = split_uri(uri)
        content = source.read_bytes()
        with suppress(MissingBucket), self._changing():
            self._s3.put_object(bucket, key, content)

    def open_log(self, group: str, stream: str) -> None:
        """Create a log stream and, if need be, its group."""
        with self._changing():
            with suppress(ResourceAlreadyExistsException):
                self._logs.create_log_group(group, {})
            with suppress(ResourceAlreadyExistsException):
                self._logs.create_log_stream(group, stream)

    def put_logs(self, group: str, stream: str, events: Sequence[Mapping[str, Any]]) -> None:
        """Append events to a stream, oldest first."""
        with self._changing():
            self._logs.put_log_events(group, stream, list(events))

    def put_metrics(
        self, namespace: str, points: Sequence[tuple[str, float, float, Mapping[str, str], str]]
    ) -> None:
        """Add (name, value, epoch seconds, dimensions, unit) to CloudWatch."""
        data = [
            {
                "MetricName": name,
                "Value": value,
                "Timestamp": datetime.fromtimestamp(epoch, UTC).replace(tzinfo=None),  # as moto keeps them
                "Dimensions": [{"Name": key, "Value": text} for key, text in dimensions.items()],
                "Unit": unit,
            }
            for name, value, epoch, dimensions, unit in points
        ]
        with self._changing():
            self._metrics.put_metric_data(namespace, data)

    def role_trusts(self, arn: str, service: str) -> bool:
        """Tell whether a role exists and a service may assume it."""
        for role in list(iam_backends[ACCOUNT_ID]["aws"].roles.values()):
            if role.arn == arn:
                return service in _principals(role.assume_role_policy_document)
        return False

    def own_repository(self, image: str) -> str | None:
        """Return the repository of an image in this account's ECR, None for another account's image."""
        registry, _, rest = image.partition("/")
        if not registry.startswith(f"{ACCOUNT_ID}.dkr.ecr."):
            return None
        return rest.partition("@")[0].partition(":")[0]

    def repository_exists(self, name: str) -> bool:
        """Tell whether ECR has a repository."""
        return name in ecr_backends[ACCOUNT_ID][self._region].repositories


def _principals(document: str | Mapping[str, Any]) -> set[str]:
    policy = json.loads(document) if isinstance(document, str) else document
    statements = policy.get("Statement") or []
    found: set[str] = set()
    for statement in statements if isinstance(statements, list) else [statements]:
        principal = statement.get("Principal") or {}
        services = principal.get("Service", []) if isinstance(principal, Mapping) else []
        if statement.get("Effect") == "Allow":
            found.update([services] if isinstance(services, str) else services)
    return found


def split_uri(uri: str) -> tuple[str, str]:
    """Split `s3://bucket/key` (or its https form) into bucket and key."""
    bucket, _, key = uri.partition("://")[2].partition("/")
    return bucket, key


def join_uri(uri: str, *parts: str) -> str:
    """Append path parts to an S3 URI."""
    return "/".join([uri.rstrip("/"), *parts])


def files_under(directory: Path) -> Iterator[Path]:
    """Yield the regular files below a directory, sorted; links to elsewhere are not followed."""
    return (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink())


def remove(directory: Path) -> None:
    """Delete a tree, whatever modes its content has."""

    def retry(function: Any, path: str, _: object) -> None:
        with suppress(OSError):
            Path(path).parent.chmod(0o700)
            Path(path).chmod(0o700)
            function(path)

    shutil.rmtree(directory, onerror=retry)
