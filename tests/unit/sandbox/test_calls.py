from __future__ import annotations

import io
import json
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest

from airflow_smd.sandbox.calls import Call, CallRecord, identify, read_body, shortened


class Caught(Exception):
    """Carries the request that would have been sent."""


def environ_of(service: str, operation: str, endpoint_url: str, **arguments: Any) -> dict[str, Any]:
    """Return the WSGI environment of the request that boto3 makes of a call."""
    client = boto3.client(service, endpoint_url=endpoint_url, region_name="us-east-1")
    caught: list[AWSPreparedRequest] = []

    def catch(request: AWSPreparedRequest, **_: Any) -> None:
        caught.append(request)
        raise Caught

    client.meta.events.register("before-send", catch)
    with pytest.raises(Caught):
        getattr(client, operation)(**arguments)
    return environ(caught[0])


def environ(request: AWSPreparedRequest) -> dict[str, Any]:
    from werkzeug.test import EnvironBuilder

    body = request.body.read() if hasattr(request.body, "read") else request.body or b""
    headers = {
        name: value.decode() if isinstance(value, bytes) else value for name, value in request.headers.items()
    }
    headers.pop("Content-Length", None)
    path, _, query = request.url.partition("//")[2].partition("?")
    host, _, path = path.partition("/")
    return EnvironBuilder(
        path="/" + path,
        query_string=query,
        method=request.method,
        headers=headers,
        base_url=f"http://{host}",
        data=body.encode() if isinstance(body, str) else body,
    ).get_environ()


@pytest.mark.parametrize(
    ("service", "operation", "arguments", "name", "parameters"),
    [
        pytest.param(
            "sagemaker",
            "describe_training_job",
            {"TrainingJobName": "mnist-1"},
            "DescribeTrainingJob",
            {"TrainingJobName": "mnist-1"},
            id="JSON",
        ),
        pytest.param(
            "codebuild",
            "batch_get_builds",
            {"ids": ["a:1"]},
            "BatchGetBuilds",
            {"ids": ["a:1"]},
            id="JSON list",
        ),
        pytest.param(
            "cloudwatch",
            "list_metrics",
            {"Namespace": "n"},
            "ListMetrics",
            {"Namespace": "n"},
            id="another name",
        ),
        pytest.param("iam", "get_role", {"RoleName": "r"}, "GetRole", {"RoleName": "r"}, id="query"),
        pytest.param(
            "ec2",
            "describe_subnets",
            {"SubnetIds": ["subnet-1"]},
            "DescribeSubnets",
            {"SubnetId.1": "subnet-1"},
            id="EC2's query",
        ),
        pytest.param("s3", "list_buckets", {}, "ListBuckets", {}, id="S3, the root"),
        pytest.param(
            "s3", "create_bucket", {"Bucket": "bkt"}, "CreateBucket", {"Bucket": "bkt"}, id="S3, bucket"
        ),
        pytest.param(
            "s3",
            "head_bucket",
            {"Bucket": "bkt"},
            "HeadBucket",
            {"Bucket": "bkt"},
            id="S3, look at it",
        ),
        pytest.param(
            "s3",
            "get_object",
            {"Bucket": "bkt", "Key": "a/b c/é"},
            "GetObject",
            {"Bucket": "bkt", "Key": "a/b c/é"},
            id="S3, a key with blanks and accents",
        ),
        pytest.param(
            "s3",
            "put_object",
            {"Bucket": "bkt", "Key": "folder/", "Body": b""},
            "PutObject",
            {"Bucket": "bkt", "Key": "folder/"},
            id="S3, a key that ends with a slash",
        ),
        pytest.param(
            "s3",
            "copy_object",
            {"Bucket": "bkt", "Key": "k", "CopySource": "bkt/j"},
            "CopyObject",
            {"Bucket": "bkt", "Key": "k"},
            id="S3, told from a put by a header",
        ),
        pytest.param(
            "s3",
            "upload_part",
            {"Bucket": "bkt", "Key": "k", "UploadId": "u", "PartNumber": 2, "Body": b"1"},
            "UploadPart",
            {"Bucket": "bkt", "Key": "k", "UploadId": "u", "PartNumber": "2"},
            id="S3, told from a put by the query",
        ),
        pytest.param(
            "s3",
            "create_multipart_upload",
            {"Bucket": "bkt", "Key": "k"},
            "CreateMultipartUpload",
            {"Bucket": "bkt", "Key": "k"},
            id="S3, told by a query without a value",
        ),
        pytest.param(
            "s3",
            "get_object_tagging",
            {"Bucket": "bkt", "Key": "k"},
            "GetObjectTagging",
            {"Bucket": "bkt", "Key": "k"},
            id="S3, a part of an object",
        ),
    ],
)
def test_call_of_boto3_is_recognised(
    service: str, operation: str, arguments: dict[str, Any], name: str, parameters: dict[str, Any]
) -> None:
    request = environ_of(service, operation, "http://127.0.0.1:1", **arguments)

    call = identify(request, read_body(request))

    assert (call.service, call.operation) == (service, name)
    assert {key: call.parameters[key] for key in parameters} == parameters


def test_presigned_url_is_recognised() -> None:
    s3 = boto3.client("s3", endpoint_url="http://127.0.0.1:1", region_name="us-east-1")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "bkt", "Key": "k"})
    request = environ(AWSPreparedRequest("GET", url, {}, b"", False))

    call = identify(request, b"")

    assert (call.service, call.operation, call.parameters["Key"]) == ("s3", "GetObject", "k")


def test_request_that_no_model_knows_has_no_operation() -> None:
    request = environ(AWSPreparedRequest("PATCH", "http://127.0.0.1:1/bucket/key", {}, b"", False))

    assert identify(request, b"").operation == ""


def test_body_can_be_read_again() -> None:
    request = {"wsgi.input": io.BytesIO(b"abcd"), "CONTENT_LENGTH": "3", "REQUEST_METHOD": "POST"}

    assert read_body(request) == b"abc"
    assert request["wsgi.input"].read() == b"abc"


def test_body_that_is_not_json_gives_no_parameters() -> None:
    request = {"HTTP_X_AMZ_TARGET": "SageMaker.CreateTrainingJob", "PATH_INFO": "/"}

    assert identify(request, b"{").parameters == {}


def test_long_parameters_are_cut_in_the_record() -> None:
    kept = shortened({"text": "x" * 5000, "list": list(range(500)), "deep": {"text": "y"}})

    assert len(json.dumps(kept)) < 1000
    assert kept["deep"] == {"text": "y"}
    assert kept["text"].endswith("… (5000 characters)")


def test_numbers_go_on_when_the_record_is_cleared() -> None:
    record = CallRecord()
    call = Call(service="s3", operation="ListBuckets")
    record.begin(call)

    assert record.clear() == 1
    assert record.begin(call)["number"] == 2
    assert [noted["number"] for noted in record.listed(service="s3", since=1)] == [2]
