"""Data sets: the fake and S3 (as the sandbox serves it) keep the same promises."""

import json
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from airflow_smd.aws.dataset import Datasets
from airflow_smd.domain.dataset import Manifest, S3Folder, Shard
from airflow_smd.errors import BucketElsewhere, BucketMissing, DatasetDenied, DatasetEmpty, DatasetUnreadable
from tests.fakes.dataset import FakeDatasets

FOLDER = "s3://{bucket}/shards/f"


class OnFake:
    def __init__(self):
        self.bucket = "data"
        self.datasets = FakeDatasets("data")

    def put(self, key, content):
        self.datasets.put(self.bucket, key, content)


class OnSandbox:
    def __init__(self, sandbox):
        self.bucket = f"data-{uuid4().hex[:8]}"
        self.client = sandbox.client("s3")
        self.client.create_bucket(Bucket=self.bucket)
        self.datasets = Datasets(self.client, region=sandbox.region)

    def put(self, key, content):
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)


@pytest.fixture(params=["fake", "sandbox"])
def place(request):
    return OnFake() if request.param == "fake" else OnSandbox(request.getfixturevalue("sandbox"))


def folder(place, prefix):
    return S3Folder(bucket=place.bucket, prefix=prefix)


def manifest(uri, samples=1):
    return Manifest(
        uri=uri,
        fingerprint="f",
        source={"files": 1},
        transform={"kind": "copy"},
        world_sizes=[1],
        splits={"train": [Shard(name="train/0.tar", size_bytes=1, samples=samples, sha256="0")]},
        created_by="test",
    )


def test_a_listing_holds_names_etags_and_sizes(place):
    place.put("raw/b.csv", b"22")
    place.put("raw/deep/a b+ü.csv", b"1")

    source = place.datasets.source(folder(place, "raw/"))

    assert [(item.name, item.size_bytes) for item in source.objects] == [("b.csv", 2), ("deep/a b+ü.csv", 1)]
    assert source.objects[1].etag == "c4ca4238a0b923820dcc509a6f75849b"


def test_markers_and_hidden_objects_are_no_data(place):
    for key in ("raw/", "raw/_SUCCESS", "raw/.DS_Store", "raw/x/"):
        place.put(key, b"")
    place.put("raw/a.csv", b"1")

    assert [item.name for item in place.datasets.source(folder(place, "raw/")).objects] == ["a.csv"]


def test_a_neighbour_with_a_longer_name_is_not_listed(place):
    place.put("raw/a.csv", b"1")
    place.put("raw2/b.csv", b"1")

    assert len(place.datasets.source(folder(place, "raw/")).objects) == 1


def test_more_objects_than_a_page_are_listed(place):
    for number in range(1005):
        place.put(f"raw/{number:04d}", b"1")

    assert len(place.datasets.source(folder(place, "raw/")).objects) == 1005


def test_an_empty_prefix_is_named(place):
    with pytest.raises(DatasetEmpty, match=f"s3://{place.bucket}/nothing/"):
        place.datasets.source(folder(place, "nothing/"))


def test_a_missing_bucket_is_named(place):
    with pytest.raises(BucketMissing, match="s3://no-such-bucket-here/raw/"):
        place.datasets.source(S3Folder(bucket="no-such-bucket-here", prefix="raw/"))


def test_without_a_seal_there_is_no_manifest(place):
    assert place.datasets.manifest(folder(place, "shards/f/")) is None


def test_a_seal_is_read_back(place):
    at = folder(place, "shards/f/")

    place.datasets.seal(at, manifest(at.uri))

    assert place.datasets.manifest(at) == manifest(at.uri)


def test_of_two_seals_the_first_counts(place):
    """Two runs that finish together must agree on what the data set is."""
    at = folder(place, "shards/f/")
    place.datasets.seal(at, manifest(at.uri, samples=1))

    second = place.datasets.seal(at, manifest(at.uri, samples=2))

    assert second == manifest(at.uri, samples=1) == place.datasets.manifest(at)


def test_the_parts_of_one_layout_are_read(place):
    for name in ("part-0of2", "part-1of2", "part-0of1"):
        place.put(f"shards/f/parts/{name}.json", json.dumps({"name": name}).encode())

    parts = place.datasets.parts(folder(place, "shards/f/"), 2)

    assert [part["name"] for part in parts] == ["part-0of2", "part-1of2"]


def test_a_part_that_is_missing_is_left_out(place):
    place.put("shards/f/parts/part-1of2.json", b"{}")

    assert place.datasets.parts(folder(place, "shards/f/"), 2) == [{}]


def test_uploaded_code_is_there_once(place):
    at = folder(place, "shards/_code/d/")

    for _ in range(2):
        place.datasets.upload(at, {"preprocess.pyz": b"zip", "job.json": b"{}"})

    assert place.datasets.sizes(at) == {"preprocess.pyz": 3, "job.json": 2}


class Refusing:
    """An S3 client whose every call is refused in one way."""

    def __init__(self, code, **error):
        self.error = ClientError({"Error": {"Code": code, "Message": "said S3", **error}}, "Any")

    def get_paginator(self, _name):
        return self

    def paginate(self, **_arguments):
        raise_in_iteration = self.error

        def pages():
            raise raise_in_iteration
            yield

        return pages()

    def put_object(self, **_arguments):
        raise self.error

    get_object = put_object


@pytest.mark.parametrize(
    ("client", "kind", "said"),
    [
        pytest.param(Refusing("AccessDenied"), DatasetDenied, "s3:ListBucket is not allowed", id="denied"),
        pytest.param(Refusing("NoSuchBucket"), BucketMissing, "does not exist", id="no bucket"),
        pytest.param(
            Refusing("PermanentRedirect", Region="eu-west-1"),
            BucketElsewhere,
            "lies in eu-west-1",
            id="elsewhere",
        ),
        pytest.param(Refusing("InvalidBucketName"), DatasetUnreadable, "bucket's name", id="bad name"),
    ],
)
def test_refusals_become_errors_that_name_the_object(client, kind, said):
    with pytest.raises(kind, match=said) as caught:
        Datasets(client).source(S3Folder(bucket="b", prefix="raw/"))

    assert caught.value.uri == "s3://b/raw/"


def test_what_may_pass_by_itself_stays_an_error_of_boto():
    with pytest.raises(ClientError):
        Datasets(Refusing("SlowDown")).source(S3Folder(bucket="b", prefix="raw/"))


def test_a_bucket_that_boto_found_in_another_region_is_refused():
    page = {
        "ResponseMetadata": {"HTTPHeaders": {"x-amz-bucket-region": "eu-west-1"}},
        "Contents": [{"Key": "raw/a", "ETag": '"1"', "Size": 1}],
    }
    client = Refusing("unused")
    client.paginate = lambda **_arguments: [page]

    with pytest.raises(BucketElsewhere, match="eu-west-1"):
        Datasets(client, region="us-east-1").source(S3Folder(bucket="b", prefix="raw/"))
