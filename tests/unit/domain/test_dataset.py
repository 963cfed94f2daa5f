import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_smd.container.mapping import InputFile
from airflow_smd.domain.dataset import Manifest, S3Folder, Shard, Source, SourceObject, disagreement, merged
from airflow_smd.errors import InvalidInput


def source(*objects):
    return Source(
        uri="s3://b/raw/", objects=[SourceObject(name=n, etag=e, size_bytes=s) for n, e, s in objects]
    )


DATA = (("a.csv", "1", 10), ("cat/b.jpg", "2", 20), ("dog/c.jpg", "3", 30))

MANIFEST = Manifest(
    uri="s3://b/shards/f/",
    fingerprint="f",
    source=source(*DATA).summary(),
    transform={"kind": "copy"},
    world_sizes=[1, 2],
    splits={
        "train": [Shard(name=f"train/{n}.tar", size_bytes=512 * n, samples=n, sha256="0") for n in (1, 2)]
    },
    classes={"cat": 0},
    skipped={"columns": 3},
    created_by="airflow-smd 0",
)


@pytest.mark.parametrize(
    ("uri", "bucket", "prefix"),
    [
        pytest.param("s3://b", "b", "", id="whole bucket"),
        pytest.param("s3://b/", "b", "", id="whole bucket with slash"),
        pytest.param("s3://b/a/c", "b", "a/c/", id="without slash"),
        pytest.param(" s3://b/a/ ", "b", "a/", id="spaces around"),
    ],
)
def test_a_folder_is_read_with_and_without_its_slash(uri, bucket, prefix):
    folder = S3Folder.parse(uri)

    assert (folder.bucket, folder.prefix) == (bucket, prefix)
    assert S3Folder.parse(folder.uri) == folder


@pytest.mark.parametrize("uri", ["", "b/a", "https://b/a", "s3://", "s3:///a", "s3://b/a//c"])
def test_what_is_no_folder_is_refused(uri):
    with pytest.raises(ValueError, match="s3://bucket/prefix/"):
        S3Folder.parse(uri)


@given(st.permutations(DATA))
def test_the_order_of_a_listing_does_not_matter(objects):
    assert source(*objects).fingerprint == source(*DATA).fingerprint


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(DATA[1:], id="an object less"),
        pytest.param((*DATA, ("z", "9", 1)), id="an object more"),
        pytest.param((("a2.csv", "1", 10), *DATA[1:]), id="another name"),
        pytest.param((("a.csv", "x", 10), *DATA[1:]), id="other content"),
        pytest.param((("a.csv", "1", 11), *DATA[1:]), id="another size"),
    ],
)
def test_any_change_changes_the_fingerprint(changed):
    assert source(*changed).fingerprint != source(*DATA).fingerprint


def test_a_copy_elsewhere_has_the_same_fingerprint():
    copy = Source(uri="s3://other/place/", objects=source(*DATA).objects)

    assert copy.fingerprint == source(*DATA).fingerprint


def test_directories_are_the_classes():
    assert source(*DATA).directories == ["cat", "dog"]


@given(st.text(), st.integers(0, 2**50))
def test_container_and_plan_give_an_object_the_same_check(name, size):
    assert InputFile("path", name, size).check == SourceObject(name=name, etag="", size_bytes=size).check


def test_a_manifest_survives_writing_and_reading():
    assert Manifest.loads(MANIFEST.dumps(), "here") == MANIFEST


def test_the_schema_is_what_readers_expect():
    written = json.loads(MANIFEST.dumps())

    assert written["version"] == 1
    assert written["format"] == "webdataset"
    assert written["splits"]["train"]["samples"] == 3
    assert written["splits"]["train"]["bytes"] == 1536
    assert set(written["splits"]["train"]["shards"][0]) == {"name", "bytes", "samples", "sha256"}
    assert set(written["source"]) >= {"uri", "bytes", "files", "fingerprint"}


def spoiled(change):
    raw = json.loads(MANIFEST.dumps())
    change(raw)
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        pytest.param("{", {"here"}, id="no JSON"),
        pytest.param("[]", {"here"}, id="a list"),
        pytest.param(spoiled(lambda raw: raw.update(version=2)), {"here"}, id="a later version"),
        pytest.param(spoiled(lambda raw: raw.update(format="mds")), {"here"}, id="another format"),
        pytest.param(
            spoiled(lambda raw: (raw.pop("uri"), raw.update(world_sizes=1))),
            {"here: uri", "here: world_sizes"},
            id="two fields",
        ),
        pytest.param(
            spoiled(lambda raw: raw["splits"]["train"]["shards"][1].pop("bytes")),
            {"here: splits.train.shards[1].bytes"},
            id="a shard without bytes",
        ),
        pytest.param(
            spoiled(lambda raw: raw["splits"]["train"].update(shards=[])),
            {"here: splits.train.shards"},
            id="no shards",
        ),
        pytest.param(
            spoiled(lambda raw: raw["splits"].update(train=None)), {"here: splits.train.shards"}, id="null"
        ),
        pytest.param(
            spoiled(lambda raw: raw["splits"]["train"]["shards"].append(3)),
            {"here: splits.train.shards[2]"},
            id="a number among the shards",
        ),
    ],
)
def test_a_broken_manifest_lists_all_its_problems(text, fields):
    with pytest.raises(InvalidInput) as caught:
        Manifest.loads(text, "here")

    assert {problem.field for problem in caught.value.problems} == fields


def part(host, hosts=2, **changes):
    mine = source(*DATA).objects[host::hosts]
    made = {
        "host": host,
        "hosts": hosts,
        "splits": {
            "train": {
                "shards": [{"name": f"s{host}", "bytes": 512, "samples": 1, "sha256": "0"}],
            }
        },
        "classes": {f"c{host}": host},
        "skipped": {"columns": 1},
        "treated": {"cmyk": host},
        "schema": {"features": 64},
        "source": {
            "files": len(mine),
            "bytes": sum(item.size_bytes for item in mine),
            "check": f"{sum(item.check for item in mine) % 2**64:016x}",
        },
    }
    return {**made, **changes}


SUMMARY = source(*DATA).summary()


def test_hosts_that_read_everything_agree():
    assert disagreement([part(1), part(0)], hosts=2, source=SUMMARY) is None


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        pytest.param([part(0)], "hosts [1] of 2", id="a host is missing"),
        pytest.param([part(0), part(0)], "hosts [1] of 2", id="a host twice"),
        pytest.param([part(0), part(1, schema={"features": 3})], "different schemas", id="other columns"),
        pytest.param(
            [part(0), part(1, source=part(0)["source"])], "read 4 files of 80 bytes", id="files twice"
        ),
    ],
)
def test_what_hosts_disagree_on_is_said(parts, said):
    assert said in disagreement(parts, hosts=2, source=SUMMARY)


def test_an_object_that_was_swapped_for_one_of_the_same_size_is_noticed():
    other = replace(source(*DATA).objects[1], name="new.jpg")
    swapped = part(1, source={**part(1)["source"], "check": f"{other.check:016x}"})

    assert disagreement([part(0), swapped], hosts=2, source=SUMMARY)


def test_merging_adds_up_and_keeps_hosts_in_order():
    manifest = merged(
        [part(1), part(0)],
        uri="u",
        fingerprint="f",
        source=SUMMARY,
        transform={},
        world_sizes=[1],
        created_by="",
    )

    assert [shard.name for shard in manifest.splits["train"]] == ["s0", "s1"]
    assert (manifest.skipped, manifest.treated) == ({"columns": 2}, {"cmyk": 1})
    assert list(manifest.classes) == ["c0", "c1"]
