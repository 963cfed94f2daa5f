"""Whether a bucket is there, and where."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from airflow_smd.aws.buckets import Buckets
from tests.fakes.lustre import BUCKET, FakeS3, refuse


@pytest.mark.parametrize(
    ("bucket", "region"),
    [
        pytest.param(BUCKET, "us-east-1", id="here"),
        pytest.param("far-away", "eu-west-1", id="elsewhere, which S3 answers with a redirection"),
        pytest.param("no-such-bucket", None, id="nowhere"),
    ],
)
def test_the_region_of_a_bucket(bucket: str, region: str | None) -> None:
    assert Buckets(FakeS3()).region(bucket) == region


def test_a_bucket_that_we_may_not_read_still_tells_its_region() -> None:
    assert Buckets(_denying({"x-amz-bucket-region": "us-west-2"})).region(BUCKET) == "us-west-2"


def test_an_answer_without_a_region_is_an_error() -> None:
    with pytest.raises(ClientError):
        Buckets(_denying({})).region(BUCKET)


@pytest.mark.parametrize(("prefix", "found"), [("digits/", True), ("letters/", False)])
def test_whether_anything_is_under_a_prefix(prefix: str, found: bool) -> None:
    assert Buckets(FakeS3()).has(BUCKET, prefix) is found


def _denying(headers: dict[str, str]) -> FakeS3:
    def head_bucket(**_: Any) -> Any:
        raise refuse("HeadBucket", "403", "Forbidden", 403, headers=headers)

    client = FakeS3()
    client.head_bucket = head_bucket  # type: ignore[method-assign, assignment]
    return client
