import gzip
import io
import tarfile
from pathlib import Path

import numpy
import pytest

from airflow_smd.container.samples import Bad
from airflow_smd.container.transforms import Copy, Function, Tabular


def made(transform, directory: Path, name: str, content: bytes):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return list(transform(path, name))


def array(sample):
    return numpy.load(io.BytesIO(sample["npy"]))


def test_a_row_becomes_features_and_label(tmp_path):
    samples = made(Tabular(dtype="uint8"), tmp_path, "d-0.csv", b"1,2,3,9\n4,5,6,0\n")

    assert [(s["__key__"], list(array(s)), s["cls"]) for s in samples] == [
        ("d-0-1", [1, 2, 3], 9),
        ("d-0-2", [4, 5, 6], 0),
    ]


@pytest.mark.parametrize(
    ("options", "content"),
    [
        pytest.param({"header": True}, b"a,b,y\n1,2,3\n", id="header"),
        pytest.param({"header": True, "label_column": "y"}, b"a,y,b\n1,3,2\n", id="label by name"),
        pytest.param({"label_column": 0}, b"3,1,2\n", id="label first"),
        pytest.param({"delimiter": "\t"}, b"1\t2\t3\n", id="tabs"),
        pytest.param({}, b"\xef\xbb\xbf1,2,3\n", id="byte order mark"),
        pytest.param({}, b"1,2,3\r\n", id="Windows line end"),
        pytest.param({}, b"1,2,3", id="no last line end"),
        pytest.param({}, b"\n\n1,2,3\n\n", id="blank lines"),
        pytest.param({}, b'"1"," 2",3\n', id="quotes and spaces"),
        pytest.param({}, b"1.0,2e0,3.0\n", id="other spellings of numbers"),
        pytest.param({"dtype": "uint8"}, b"1.0,2,3\n", id="whole numbers written as floats"),
        pytest.param({"classes": ["x", "y", "z", "w"]}, b"1,2,w\n", id="named classes"),
    ],
)
def test_odd_but_good_rows_are_read(tmp_path, options, content):
    (sample,) = made(Tabular(**options), tmp_path, "d.csv", content)

    assert (list(array(sample)), sample["cls"]) == ([1, 2], 3)


def test_gzip_is_read(tmp_path):
    (sample,) = made(Tabular(), tmp_path, "d.csv.gz", gzip.compress(b"1,2,3\n"))

    assert list(array(sample)) == [1, 2]


def test_without_a_label_column_all_columns_are_features(tmp_path):
    (sample,) = made(Tabular(label_column=None), tmp_path, "d.csv", b"1,2,3\n")

    assert (list(array(sample)), "cls" in sample) == ([1, 2, 3], False)


@pytest.mark.parametrize(
    ("options", "content", "reason", "said"),
    [
        pytest.param({}, b"1,2,3\n1,2\n", "columns", "2 columns where the first row has 3", id="short row"),
        pytest.param({}, b"1,2,3\n1,2,3,4\n", "columns", "4 columns", id="long row"),
        pytest.param({}, b"a,b,y\n", "label", "'y' is not a whole number", id="a header that was not named"),
        pytest.param({}, b"1,two,3\n", "not-a-number", "header=true", id="text"),
        pytest.param({}, b"1,,3\n", "not-a-number", "''", id="empty field"),
        pytest.param({}, b"1,nan,3\n", "not-finite", "NaN", id="NaN"),
        pytest.param({}, b"1,1e99,3\n", "not-finite", "too large", id="larger than float32"),
        pytest.param({"dtype": "uint8"}, b"1,256,3\n", "not-a-number", "uint8", id="larger than uint8"),
        pytest.param({"dtype": "uint8"}, b"1,-1,3\n", "not-a-number", "uint8", id="negative uint8"),
        pytest.param({"dtype": "uint8"}, b"1,1.5,3\n", "not-a-number", "whole", id="fraction in uint8"),
        pytest.param({"dtype": "uint8"}, b"1,inf,3\n", "not-a-number", "uint8", id="infinity in uint8"),
        pytest.param({}, b"1,2,-3\n", "label", "from 0", id="negative label"),
        pytest.param({}, b"1,2,3.5\n", "label", "3.5", id="fraction as label"),
        pytest.param({"classes": ["x"]}, b"1,2,w\n", "label", "['x']", id="unknown class"),
        pytest.param({}, b"", "empty-file", "no row", id="empty file"),
        pytest.param({}, b"1,\xff,3\n", "not-utf8", "UTF-8", id="not UTF-8"),
        pytest.param({"label_column": 5}, b"1,2,3\n", "no-label", "has 3", id="label column beyond the row"),
        pytest.param(
            {"header": True, "label_column": "z"}, b"a,b\n1,2\n", "no-label", "'z'", id="no such name"
        ),
    ],
)
def test_bad_rows_say_where_and_why(tmp_path, options, content, reason, said):
    bad = [item for item in made(Tabular(**options), tmp_path, "d.csv", content) if isinstance(item, Bad)]

    assert [(item.reason, item.source.startswith("d.csv"), said in item.message) for item in bad] == [
        (reason, True, True)
    ]


@pytest.mark.parametrize("content", [b"\x1f\x8b garbage", gzip.compress(b"1,2,3\n" * 999)[:-9]])
def test_a_damaged_gzip_is_one_bad_file(tmp_path, content):
    *_, last = made(Tabular(), tmp_path, "d.csv.gz", content)

    assert (last.source, last.reason) == ("d.csv.gz", "unreadable-file")


def test_a_bad_row_leaves_its_neighbours_alone(tmp_path):
    rows = made(Tabular(), tmp_path, "d.csv", b"1,2,3\nx,2,3\n4,5,6\n")

    assert [isinstance(row, Bad) for row in rows] == [False, True, False]
    assert rows[1].source == "d.csv row 2"


def test_files_of_other_widths_are_refused(tmp_path):
    transform = Tabular()
    made(transform, tmp_path, "a.csv", b"1,2,3\n")

    (bad,) = made(transform, tmp_path, "b.csv", b"1,2\n")

    assert (bad.reason, bad.message) == ("schema", "1 features where other files have 2")


def test_a_file_is_copied_with_its_class(tmp_path):
    transform = Copy(classes=["cat", "dog"])

    assert made(transform, tmp_path, "dog/1.jpg", b"x") == [{"__key__": "dog/1", "jpg": b"x", "cls": 1}]
    assert transform.seen == {"dog": 1}


def test_an_empty_file_is_bad(tmp_path):
    assert [bad.reason for bad in made(Copy(), tmp_path, "a.jpg", b"")] == ["empty-file"]


def tar(names):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [("keep", ["a", "d/b"]), ("prefix", ["old-0/a", "old-0/d/b"])],
)
def test_the_samples_of_a_tar_are_dealt_anew(tmp_path, keys, expected):
    samples = made(Copy(keys=keys), tmp_path, "old-0.tar", tar(["a.jpg", "a.cls", "d/b.seg.png", "d/b.cls"]))

    assert [sample["__key__"] for sample in samples] == expected
    assert set(samples[1]) == {"__key__", "seg.png", "cls"}


@pytest.mark.parametrize("content", [b"not a tar" * 200, tar(["a.jpg"])[:600]])
def test_a_damaged_tar_is_bad(tmp_path, content):
    *_, last = made(Copy(), tmp_path, "old.tar", content)

    assert (last.source, last.reason) == ("old.tar", "unreadable-file")


@pytest.fixture
def user_code(tmp_path, monkeypatch):
    (tmp_path / "my_transforms.py").write_text(
        "def halves(sample, times=1):\n"
        "    data = sample['txt']\n"
        "    yield {'txt': data[: len(data) // 2] * times}\n"
        "    yield {'__key__': 'own', 'txt': 'text', 'meta.json': {'path': sample['__path__'][-5:]}}\n"
        "def broken(sample):\n"
        "    raise KeyError('depth')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_users_function_makes_samples_of_samples(user_code):
    transform = Function(function="my_transforms:halves", arguments={"times": 2})

    samples = made(transform, user_code, "a.txt", b"abcd")

    assert samples == [
        {"__key__": "a-0", "txt": b"abab"},
        {"__key__": "own", "txt": b"text", "meta.json": b'{"path":"a.txt"}'},
    ]


def test_what_the_users_function_raises_names_sample_and_line(user_code):
    (bad,) = made(Function(function="my_transforms:broken"), user_code, "a.txt", b"abcd")

    assert (bad.source, bad.reason) == ("a.txt sample a", "transform-error")
    assert bad.message == "KeyError: 'depth' (my_transforms.py line 6)"


def test_a_function_that_is_not_there_is_found_before_the_work(user_code):
    with pytest.raises(AttributeError, match="nowhere"):
        Function(function="my_transforms:nowhere")
