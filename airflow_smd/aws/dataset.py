"""Data sets in S3: the raw objects, the shards' manifest, and the code that goes from one to the other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError

from airflow_smd.domain.dataset import MANIFEST_NAME, Manifest, S3Folder, Source, SourceObject, is_data
from airflow_smd.errors import BucketElsewhere, BucketMissing, DatasetDenied, DatasetEmpty, DatasetUnreadable

_DENIED = ("AccessDenied", "AllAccessDisabled", "Forbidden", "403")
_ELSEWHERE = (
    "PermanentRedirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "301",
)


class Datasets:
    """Reads and writes data sets.

    Args:
        client: a boto3 `s3` client.
        region: the Region in which jobs will read; a bucket elsewhere is refused.
    """

    def __init__(self, client: Any, region: str | None = None) -> None:
        self._client = client
        self._region = region

    def source(self, folder: S3Folder) -> Source:
        """Return every object of data below `folder`, in the order of their names.

        Raises:
            DatasetUnreadable: a subclass for a missing bucket, one elsewhere, no object, no permission.
        """
        objects = tuple(
            SourceObject(name=name, etag=item["ETag"].strip('"'), size_bytes=item["Size"])
            for name, item in self._list(folder)
            if is_data(name)
        )
        if not objects:
            raise DatasetEmpty(folder.uri)
        return Source(uri=folder.uri, objects=objects)

    def sizes(self, folder: S3Folder) -> dict[str, int]:
        """Return the bytes of every object below `folder`, by name."""
        return {name: item["Size"] for name, item in self._list(folder)}

    def manifest(self, folder: S3Folder) -> Manifest | None:
        """Return the seal of the data set in `folder`, None while it has none."""
        text = self._read(folder, MANIFEST_NAME)
        return None if text is None else Manifest.loads(text, f"{folder.uri}{MANIFEST_NAME}")

    def seal(self, folder: S3Folder, manifest: Manifest) -> Manifest:
        """Write the manifest unless another run has sealed the same data set; return the one that counts."""
        key = folder.prefix + MANIFEST_NAME
        try:
            with _typed(folder.uri, "s3:PutObject"):
                self._client.put_object(
                    Bucket=folder.bucket,
                    Key=key,
                    Body=manifest.dumps().encode(),
                    ContentType="application/json",
                    IfNoneMatch="*",
                )
        except ClientError as error:
            # 409: another conditional write is under way, and one of the two wins
            if error.response["Error"]["Code"] not in ("PreconditionFailed", "ConditionalRequestConflict"):
                raise
            return self.manifest(folder) or manifest
        return manifest

    def parts(self, folder: S3Folder, hosts: int) -> list[dict[str, Any]]:
        """Return the partial manifests that the hosts of a job have left, those that are there."""
        names = [f"parts/part-{host}of{hosts}.json" for host in range(hosts)]
        return [json.loads(text) for name in names if (text := self._read(folder, name)) is not None]

    def upload(self, folder: S3Folder, files: Mapping[str, bytes]) -> None:
        """Write files below `folder`, named by their content: what is there is not sent again."""
        there = dict(self._list(folder))
        for name, content in files.items():
            if there.get(name, {}).get("Size") != len(content):
                with _typed(folder.uri, "s3:PutObject"):
                    self._client.put_object(Bucket=folder.bucket, Key=folder.prefix + name, Body=content)

    def _list(self, folder: S3Folder) -> Iterator[tuple[str, Mapping[str, Any]]]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=folder.bucket, Prefix=folder.prefix
        )
        with _typed(folder.uri, "s3:ListBucket"):
            for page in pages:
                self._check_region(folder, page)
                for item in page.get("Contents", []):
                    yield item["Key"].removeprefix(folder.prefix), item

    def _check_region(self, folder: S3Folder, answer: Mapping[str, Any]) -> None:
        # boto3 follows a redirect to another Region in silence; SageMaker would fail later
        region = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("x-amz-bucket-region")
        if region and self._region and region != self._region:
            raise BucketElsewhere(folder.uri, region)

    def _read(self, folder: S3Folder, name: str) -> bytes | None:
        try:
            with _typed(folder.uri, "s3:GetObject"):
                answer = self._client.get_object(Bucket=folder.bucket, Key=folder.prefix + name)
                content: bytes = answer["Body"].read()
                return content
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise


@contextmanager
def _typed(uri: str, action: str) -> Iterator[None]:
    """Turn S3's refusals into our errors; what may pass by itself is left as it is."""
    try:
        yield
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        if code == "NoSuchBucket":
            raise BucketMissing(uri) from error
        if code in _DENIED:
            raise DatasetDenied(uri, action, message or code) from error
        if code in _ELSEWHERE:
            raise BucketElsewhere(uri, error.response["Error"].get("Region", "")) from error
        if code == "InvalidBucketName":
            raise DatasetUnreadable(uri, f"{message} Correct the bucket's name.") from error
        raise
