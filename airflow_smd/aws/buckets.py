"""S3 buckets: whether they are there, and where."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError


class Buckets:
    """The S3 buckets that a connection can see.

    Args:
        client: a boto3 `s3` client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def region(self, bucket: str) -> str | None:
        """Return the Region of a bucket, None if there is no such bucket.

        S3 names the Region also to those who may not read the bucket.
        """
        try:
            headers = self._client.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
        except ClientError as error:
            answer = error.response["ResponseMetadata"]
            if answer["HTTPStatusCode"] == 404:
                return None
            headers = answer["HTTPHeaders"]
            if "x-amz-bucket-region" not in headers:
                raise
        return str(headers.get("x-amz-bucket-region", self._client.meta.region_name))

    def has(self, bucket: str, prefix: str) -> bool:
        """Return whether there is any object under the prefix."""
        return bool(self._client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1).get("KeyCount"))
