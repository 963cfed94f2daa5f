import ast
import io
import tarfile
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airflow_smd.container
from airflow_smd.container.samples import (
    Bad,
    Labels,
    encode,
    extension_of,
    key_of,
    npy_bytes,
    shuffle_hash,
    split_of,
    tar_bytes,
    tar_header,
)

RUNS_IN_THE_JOB = ("images", "mapping", "preprocess", "samples", "sharding", "shards", "transforms")


@pytest.mark.parametrize("module", RUNS_IN_THE_JOB)
def test_what_runs_in_the_job_is_python_3_9(module):
    """AWS's scikit-learn image, the default, has Python 3.9."""
    source = Path(airflow_smd.container.__path__[0], f"{module}.py").read_text()

    ast.parse(source, feature_version=(3, 9))


@pytest.mark.parametrize(
    ("path", "key", "extension"),
    [
        pytest.param("cat/a.jpg", "cat/a", "jpg", id="plain"),
        pytest.param("README", "README", "bin", id="no extension"),
        pytest.param("a/b.JPG", "a/b", "jpg", id="capitals"),
        pytest.param("数据/图.png", "数据/图", "png", id="letters of any script"),
    ],
)
def test_a_file_gives_its_key_and_extension(path, key, extension):
    assert (key_of(path), extension_of(path)) == (key, extension)


@pytest.mark.parametrize("path", ["a.1.jpg", "a 1.jpg", "a\n1.jpg", "x/a.b.c.d"])
def test_a_key_has_no_dot_and_no_space(path):
    """WebDataset cuts a name at its first dot."""
    assert not set(key_of(path)) & set(". \n")


def test_keys_stay_apart_when_characters_are_replaced():
    assert len({key_of("a-1.jpg"), key_of("a 1.jpg"), key_of("a.1.jpg")}) == 3


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.binary(max_size=2000), min_size=1))
def test_a_sample_is_read_back_by_tarfile(contents):
    data = tar_bytes({"__key__": "dir/key", **contents})

    with tarfile.open(fileobj=io.BytesIO(data + b"\0" * 1024)) as archive:
        read = {member.name: archive.extractfile(member).read() for member in archive}
    assert read == {f"dir/key.{name}": content for name, content in contents.items()}


def test_the_same_sample_is_the_same_bytes_in_any_order_of_its_parts():
    one = tar_bytes({"__key__": "k", "cls": 1, "npy": b"x"})
    other = tar_bytes({"npy": b"x", "__key__": "k", "cls": 1})

    assert one == other


def test_a_long_key_survives():
    key = "d/" + "x" * 300

    with tarfile.open(fileobj=io.BytesIO(tar_bytes({"__key__": key, "bin": b"1"}) + b"\0" * 1024)) as archive:
        assert archive.getnames() == [f"{key}.bin"]


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=120),
    st.integers(0, 2**40),
)
def test_a_header_is_the_one_that_tarfile_writes(name, size):
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o444

    assert tar_header(name, size) == member.tobuf(tarfile.PAX_FORMAT)


def test_a_sample_without_content_is_refused():
    with pytest.raises(TypeError, match="has no content"):
        tar_bytes({"__key__": "k"})


@pytest.mark.parametrize(
    ("extension", "value", "content"),
    [
        pytest.param("cls", 7, b"7", id="number"),
        pytest.param("txt", "é", "é".encode(), id="text"),
        pytest.param("json", {"b": 1, "a": [2]}, b'{"a":[2],"b":1}', id="json, sorted"),
        pytest.param("meta.json", [1], b"[1]", id="json under a longer extension"),
        pytest.param("bin", bytearray(b"x"), b"x", id="bytearray"),
    ],
)
def test_values_are_encoded_by_type_and_extension(extension, value, content):
    assert encode(extension, value) == content


def test_an_array_becomes_npy():
    array = numpy.arange(6, dtype="<i4").reshape(2, 3)

    assert (numpy.load(io.BytesIO(encode("npy", array))) == array).all()


def test_an_object_that_nobody_can_read_is_refused():
    with pytest.raises(TypeError, match=r"\.pkl is a set"):
        encode("pkl", {1})


@pytest.mark.parametrize(("code", "dtype"), [("f", "f4"), ("B", "u1"), ("i", "i4"), ("q", "i8"), ("d", "f8")])
@pytest.mark.parametrize("shape", [(1,), (64,), (3, 5, 2)])
def test_numpy_reads_what_we_write_without_numpy(code, dtype, shape):
    array = numpy.arange(numpy.prod(shape)).astype(dtype).reshape(shape)

    read = numpy.load(io.BytesIO(npy_bytes(code, shape, array.tobytes())))

    assert read.dtype == array.dtype
    assert (read == array).all()


def test_more_data_never_move_a_sample_to_the_other_split():
    """The split is the key's alone, so validation samples of last week are none of training today."""
    assert split_of("digits-0-266", 0.1) == split_of("digits-0-266", 0.1)
    grown = [key for key in map(str, range(5000)) if split_of(key, 0.1) == "validation"]
    assert all(split_of(key, 0.2) == "validation" for key in grown)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5])
def test_about_the_wanted_fraction_is_validation(fraction):
    hits = sum(split_of(f"file-{number}", fraction) == "validation" for number in range(20_000))

    assert hits / 20_000 == pytest.approx(fraction, abs=0.01)


def test_the_seed_changes_the_order_and_not_the_split():
    keys = [str(number) for number in range(100)]

    assert sorted(keys, key=lambda key: shuffle_hash(key, 0)) != sorted(
        keys, key=lambda key: shuffle_hash(key, 1)
    )


@pytest.mark.parametrize(
    ("name", "label"),
    [
        pytest.param("train/cat/1.jpg", 0, id="parent directory"),
        pytest.param("dog/1.jpg", 1, id="directly below the root"),
    ],
)
def test_the_class_is_the_parent_directory(name, label):
    sample = Labels("directory", ["cat", "dog"]).put({"__key__": "k"}, name)

    assert sample["cls"] == label


@pytest.mark.parametrize("name", ["1.jpg", "bird/1.jpg"])
def test_a_file_outside_the_classes_is_bad_and_says_which_there_are(name):
    bad = Labels("directory", ["cat", "dog"]).put({"__key__": "k"}, name)

    assert isinstance(bad, Bad)
    assert (bad.reason, "['cat', 'dog']" in bad.message) == ("class", True)
