"""Which objects a host gets, and what goes back to S3."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from airflow_smd.sandbox.jobs import staging
from airflow_smd.sandbox.jobs.cloud import split_uri


class Bucket:
    """S3 in a dictionary, with the methods of `Cloud` that staging uses."""

    def __init__(self, **objects: bytes) -> None:
        self.objects = {key.replace("__", "/"): value for key, value in objects.items()}
        self.uploads: list[str] = []

    def keys(self, uri: str) -> list[str]:
        prefix = split_uri(uri)[1]
        return sorted(key for key in self.objects if key.startswith(prefix) and not key.endswith("/"))

    def read(self, bucket: str, key: str) -> bytes:
        return self.objects[key]

    def download(self, bucket: str, key: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.objects[key])

    def upload(self, source: Path, uri: str) -> None:
        key = split_uri(uri)[1]
        self.uploads.append(key)
        self.objects[key] = source.read_bytes()


def paths(bucket: Bucket, uri: str, data_type: str = "S3Prefix") -> list[str]:
    return [item.path for item in staging.objects_of(bucket, uri, data_type)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        pytest.param("s3://b/data", ["a", "sub/b"], id="a folder without slash"),
        pytest.param("s3://b/data/", ["a", "sub/b"], id="a folder with slash"),
        pytest.param("s3://b/data/sub/b", ["b"], id="one object"),
        pytest.param("s3://b/data/su", ["sub/b"], id="the beginning of names"),
        pytest.param("s3://b", ["data/a", "data/sub/b"], id="a whole bucket"),
    ],
)
def test_prefix_decides_where_an_object_lies_in_its_channel(uri: str, expected: list[str]) -> None:
    assert paths(Bucket(data__a=b"1", data__sub__b=b"2"), uri) == expected


def test_missing_objects_are_an_error() -> None:
    with pytest.raises(staging.NoObjects):
        paths(Bucket(), "s3://b/none")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("not json", id="text"),
        pytest.param("[]", id="an empty list"),
        pytest.param('["a"]', id="a list without a prefix"),
        pytest.param("{}", id="an object"),
    ],
)
def test_broken_manifest_is_an_error(text: str) -> None:
    with pytest.raises(staging.NoObjects, match="not a manifest"):
        paths(Bucket(manifest=text.encode()), "s3://b/manifest", "ManifestFile")


def test_manifest_with_a_prefix_alone_means_all_below_it() -> None:
    bucket = Bucket(manifest=json.dumps([{"prefix": "s3://b/data/"}]).encode(), data__a=b"", data__b=b"")

    assert paths(bucket, "s3://b/manifest", "ManifestFile") == ["a", "b"]


def test_shards_of_all_hosts_make_the_whole_without_overlap() -> None:
    objects = [staging.S3Object("b", str(number), str(number)) for number in range(7)]

    shares = [staging.share(objects, "ShardedByS3Key", host, 3) for host in range(3)]

    assert sorted(item.key for share in shares for item in share) == [str(number) for number in range(7)]
    assert [len(share) for share in shares] == [3, 2, 2]
    assert staging.share(objects, "FullyReplicated", 1, 3) == objects


def test_object_cannot_be_written_outside_its_channel(tmp_path: Path) -> None:
    with pytest.raises(staging.NoObjects, match="outside"):
        staging.download(Bucket(evil=b""), [staging.S3Object("b", "evil", "../evil")], tmp_path / "in")  # type: ignore[arg-type]


def test_mirror_uploads_what_changed_and_only_that(tmp_path: Path) -> None:
    bucket = Bucket(ck__old=b"old")
    mirror = staging.Mirror(bucket, tmp_path, "s3://b/ck")  # type: ignore[arg-type]
    mirror.fetch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "new").write_text("new")

    mirror.push()
    mirror.push()

    assert (tmp_path / "old").read_text() == "old"
    assert bucket.uploads == ["ck/sub/new"]


def test_file_that_is_being_written_waits_for_the_next_time(tmp_path: Path) -> None:
    bucket = Bucket()
    mirror = staging.Mirror(bucket, tmp_path, "s3://b/ck")  # type: ignore[arg-type]
    (tmp_path / "half").write_text("ha")

    mirror.push(settled=False)
    assert bucket.uploads == []
    mirror.push()

    assert bucket.uploads == ["ck/half"]


def test_model_of_all_hosts_is_one_archive(tmp_path: Path) -> None:
    """Where two hosts wrote the same path, the first host's file is taken."""
    bucket, hosts = Bucket(), [tmp_path / "1", tmp_path / "2"]
    for host, names in zip(hosts, (["same", "one"], ["same", "two"]), strict=True):
        host.mkdir()
        for name in names:
            (host / name).write_text(host.name)

    assert staging.upload_artifacts(bucket, hosts, "s3://b/out", "model", tmp_path, compressed=True)  # type: ignore[arg-type]

    with tarfile.open(fileobj=io.BytesIO(bucket.objects["out/model.tar.gz"])) as tar:
        content = {name: tar.extractfile(name).read().decode() for name in tar.getnames()}  # type: ignore[union-attr]
    assert content == {"same": "1", "one": "1", "two": "2"}


def test_empty_model_is_not_uploaded(tmp_path: Path) -> None:
    bucket = Bucket()

    assert not staging.upload_artifacts(bucket, [tmp_path], "s3://b/out", "model", tmp_path, compressed=True)  # type: ignore[arg-type]
    assert bucket.objects == {}
