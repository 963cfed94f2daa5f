"""A layer survives the way through its tar."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from airflow_smd.sandbox.oci_layer import is_whiteout, pack, unpack

makes_whiteouts = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root makes what overlayfs takes for removed"
)


def there_and_back(directory: Path, tmp_path: Path) -> Path:
    layer = pack(directory, tmp_path / "blobs")
    return unpack(tmp_path / "blobs" / layer.digest.removeprefix("sha256:"), tmp_path / "unpacked")


def test_files_links_and_modes_come_back(tmp_path):
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "run").write_text("x")
    (root / "bin" / "run").chmod(0o4755)
    (root / "sbin").symlink_to("bin")
    (root / "again").hardlink_to(root / "bin" / "run")

    back = there_and_back(root, tmp_path)

    assert (back / "bin" / "run").stat().st_mode & 0o7777 == 0o4755
    assert (back / "sbin").readlink() == Path("bin")
    assert (back / "again").stat().st_ino == (back / "bin" / "run").stat().st_ino


@makes_whiteouts
def test_a_removed_file_stays_removed(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    os.mknod(root / "gone", 0o020000, os.makedev(0, 0))

    assert is_whiteout(there_and_back(root, tmp_path) / "gone")


@makes_whiteouts
def test_a_replaced_directory_stays_replaced(tmp_path):
    root = tmp_path / "root"
    (root / "new").mkdir(parents=True)
    os.setxattr(root / "new", "trusted.overlay.opaque", b"y")

    assert os.getxattr(there_and_back(root, tmp_path) / "new", "trusted.overlay.opaque") == b"y"


def test_equal_directories_give_equal_bytes(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for file in ("b", "a") if name == "one" else ("a", "b"):
            (tmp_path / name / file).write_text(file)
            os.utime(tmp_path / name / file, (1, 1))

    assert pack(tmp_path / "one", tmp_path / "x") == pack(tmp_path / "two", tmp_path / "y")


def test_a_layer_that_writes_elsewhere_is_refused(tmp_path):
    blob = tmp_path / "blob"
    with tarfile.open(blob, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../../outside"), io.BytesIO())

    with pytest.raises(tarfile.OutsideDestinationError):
        unpack(blob, tmp_path / "deep" / "unpacked")


def test_a_layer_is_unpacked_once(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").write_text("1")
    back = there_and_back(tmp_path / "root", tmp_path)
    (back / "a").write_text("2")

    assert (there_and_back(tmp_path / "root", tmp_path) / "a").read_text() == "2"
