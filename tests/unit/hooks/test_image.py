"""The build context on disk is read as `docker build` would."""

from __future__ import annotations

import pytest

from airflow_smd.errors import InvalidInput
from airflow_smd.hooks.image import read_context


def refused(directory, **limits):
    with pytest.raises(InvalidInput) as error:
        read_context(directory, **limits)
    return [problem.rule for problem in error.value.problems]


def test_files_come_sorted_with_their_executable_bit(tmp_path):
    (tmp_path / "b.sh").write_text("#!/bin/sh")
    (tmp_path / "b.sh").chmod(0o755)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.py").write_text("1")

    assert [(file.path, file.mode) for file in read_context(tmp_path)] == [("a/x.py", 0o644), ("b.sh", 0o755)]


def test_what_no_image_needs_is_left_out(tmp_path):
    for name in (".git/config", "__pycache__/x.pyc", "data/big.bin", "train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".dockerignore").write_text("data\n.dockerignore\n")

    assert [file.path for file in read_context(tmp_path)] == ["train.py"]


def test_a_link_inside_the_context_is_the_file_it_leads_to(tmp_path):
    (tmp_path / "a").write_text("content")
    (tmp_path / "b").symlink_to("a")

    assert [file.content for file in read_context(tmp_path)] == [b"content", b"content"]


@pytest.mark.parametrize(
    "target", [pytest.param("/etc/hostname", id="outside"), pytest.param("nothing", id="to nothing")]
)
def test_a_link_that_leads_nowhere_good_is_refused(tmp_path, target):
    (tmp_path / "link").symlink_to(target)

    assert refused(tmp_path) == ["link-out-of-context"]


def test_a_context_with_data_in_it_is_refused(tmp_path):
    (tmp_path / "data.bin").write_bytes(b"x" * 11)

    assert refused(tmp_path, largest_bytes=10) == ["context-size"]


def test_a_missing_directory_is_refused(tmp_path):
    assert refused(tmp_path / "none") == ["no-context"]
