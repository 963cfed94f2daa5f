from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_smd.sandbox.bodies import Bodies, StoredBody

CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def key() -> Iterator[Any]:
    from moto.s3.models import FakeKey

    made = FakeKey("k", CONTENT, account_id="123456789012", region_name="us-east-1", max_buffer_size=100)
    yield made
    made.dispose()


def test_object_reads_the_same_from_its_file(tmp_path: Path, key: Any) -> None:
    Bodies(tmp_path).keep(key)

    assert key.value == CONTENT
    assert key.etag == f'"{hashlib.md5(CONTENT).hexdigest()}"'
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [CONTENT]


def test_object_is_written_once(tmp_path: Path, key: Any) -> None:
    bodies = Bodies(tmp_path)

    assert bodies.keep(key) is bodies.keep(key)
    assert len(list(tmp_path.iterdir())) == 1


def test_files_that_no_snapshot_names_are_deleted(tmp_path: Path, key: Any) -> None:
    bodies = Bodies(tmp_path)
    kept = bodies.keep(key)

    bodies.forget_others({kept.path.name})
    assert kept.path.exists()

    Bodies(tmp_path).forget_others(set())
    assert not kept.path.exists()


def test_body_is_read_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"abcdef")
    body = StoredBody(tmp_path / "body")

    assert (body.read(2), body.read(2), body.seek(1), body.read()) == (b"ab", b"cd", 1, b"bcdef")


def test_deleted_body_reads_like_a_closed_file() -> None:
    with pytest.raises(ValueError, match="closed"):
        StoredBody.gone().read()
