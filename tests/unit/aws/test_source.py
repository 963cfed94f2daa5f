import io
import tarfile
from pathlib import Path

import pytest

from airflow_smd.aws.addresses import split_s3_uri
from airflow_smd.aws.source import local_source, pack


def names(packed: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return tar.getnames()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "model.py").write_text("x = 1")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "train.pyc").write_bytes(b"")
    return tmp_path


def test_the_archive_holds_the_code_and_our_container_modules(code: Path):
    found = names(pack(code))

    assert {"train.py", "lib/model.py", "airflow_smd/__init__.py", "airflow_smd/container/report.py"} <= set(
        found
    )
    assert not [name for name in found if "__pycache__" in name]
    assert not [name for name in found if name.startswith("airflow_smd/operators")]


def test_the_same_files_give_the_same_bytes(code: Path):
    before = pack(code)
    (code / "train.py").touch()

    assert pack(code) == before


def test_another_byte_gives_other_bytes(code: Path):
    before = pack(code)
    (code / "train.py").write_text("print(1)")

    assert pack(code) != before


def test_an_entry_point_without_a_folder_is_packed_alone(code: Path):
    (code / "secret.txt").write_text("not asked for")

    found = names(pack(code / "train.py"))

    assert "train.py" in found
    assert "secret.txt" not in found


@pytest.mark.parametrize(
    ("job", "field"),
    [
        pytest.param({"source_dir": "{code}", "entry_point": "train.py"}, None, id="script in its folder"),
        pytest.param({"entry_point": "{code}/train.py"}, None, id="script alone"),
        pytest.param({"source_dir": "s3://b/code.tar.gz", "entry_point": "train.py"}, None, id="code in S3"),
        pytest.param({}, None, id="code in the image"),
        pytest.param(
            {"source_dir": "{code}/no", "entry_point": "train.py"}, "job.source_dir", id="no folder"
        ),
        pytest.param({"source_dir": "{code}", "entry_point": "trian.py"}, "job.entry_point", id="no script"),
        pytest.param({"entry_point": "{code}/trian.py"}, "job.entry_point", id="no script, no folder"),
    ],
)
def test_code_that_is_not_there_is_found_missing(code: Path, job, field):
    _, problems = local_source({name: value.format(code=code) for name, value in job.items()})

    assert [problem.field for problem in problems] == ([field] if field else [])


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        pytest.param("s3://bucket", ("bucket", ""), id="bucket alone"),
        pytest.param("s3://bucket/", ("bucket", ""), id="bucket with slash"),
        pytest.param("s3://bucket/a/b", ("bucket", "a/b/"), id="prefix"),
        pytest.param("s3://bucket/a/b/", ("bucket", "a/b/"), id="prefix with slash"),
    ],
)
def test_s3_uris_are_split(uri, parts):
    assert split_s3_uri(uri) == parts


@pytest.mark.parametrize("uri", ["", "bucket/key", "s3://", "https://bucket/key", "s3:///key"])
def test_what_is_no_s3_uri_is_refused(uri):
    with pytest.raises(ValueError, match="s3://bucket/prefix"):
        split_s3_uri(uri)
