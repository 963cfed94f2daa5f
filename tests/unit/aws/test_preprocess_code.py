import io
import zipfile

import pytest

from airflow_smd.aws.preprocess_code import code_files, digest, user_code_digest


@pytest.fixture
def code_dir(tmp_path):
    (tmp_path / "pkg" / "__pycache__").mkdir(parents=True)
    (tmp_path / "pkg" / "mine.py").write_text("x = 1\n")
    (tmp_path / "pkg" / "__pycache__" / "mine.pyc").write_bytes(b"x")
    return tmp_path


def names(content):
    return zipfile.ZipFile(io.BytesIO(content)).namelist()


def test_only_what_the_container_needs_travels():
    members = names(code_files(None)["preprocess.pyz"])

    assert "__main__.py" in members
    assert "airflow_smd/container/preprocess.py" in members
    assert not [name for name in members if "domain" in name or "aws" in name]


def test_the_same_code_has_the_same_name(code_dir):
    assert digest(code_files(code_dir)) == digest(code_files(code_dir))


def test_changed_code_has_another_name(code_dir):
    before = code_files(code_dir)
    (code_dir / "pkg" / "mine.py").write_text("x = 2\n")
    after = code_files(code_dir)

    assert digest(before) != digest(after)
    assert user_code_digest(before) != user_code_digest(after)


def test_caches_stay_at_home(code_dir):
    assert names(code_files(code_dir)["user.zip"]) == ["pkg/mine.py"]


def test_without_user_code_there_is_none():
    assert user_code_digest(code_files(None)) == ""
