from __future__ import annotations

import json
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_smd.sandbox.bodies import Bodies, StoredBody
from airflow_smd.sandbox.runtime import Runtime, Settings
from airflow_smd.sandbox.state import MotoState, StateUnreadable, dumped, loaded


class Holder:
    """Stands for a backend of moto's."""

    def __init__(self, value: Any) -> None:
        self.value = value


def copied(value: Any, directory: Path) -> Any:
    """Return a value after it was pickled and read again."""
    content, _ = dumped(Holder(value), Bodies(directory))
    return loaded(content, Bodies(directory)).value


@pytest.fixture
def state(tmp_path: Path) -> MotoState:
    return MotoState(Runtime(settings=Settings(home=tmp_path), endpoint_url=""))


@pytest.mark.parametrize(
    "lock", [pytest.param(threading.Lock, id="lock"), pytest.param(threading.RLock, id="rlock")]
)
def test_lock_is_made_anew_and_free(lock: Any, tmp_path: Path) -> None:
    held = lock()
    held.acquire()

    assert copied(held, tmp_path).acquire(blocking=False)


def test_every_version_of_an_object_is_kept_in_order(tmp_path: Path) -> None:
    from moto.s3.utils import _VersionedKeyStore

    store = _VersionedKeyStore()
    for version in ("old", "new"):
        store["k"] = version
    again = copied(store, tmp_path)

    assert again.getlist("k") == ["old", "new"]
    assert again["k"] == "new"


def test_object_is_kept_with_its_bytes_beside(tmp_path: Path) -> None:
    from moto.s3.models import FakeKey

    key = FakeKey("k", b"the bytes", account_id="123456789012", region_name="us-east-1")
    content, referenced = dumped(Holder(key), Bodies(tmp_path))
    again = loaded(content, Bodies(tmp_path)).value

    assert b"the bytes" not in content
    assert {path.name for path in tmp_path.iterdir()} == referenced
    assert (again.name, again.value, again.etag) == ("k", b"the bytes", key.etag)


def test_deleted_object_is_kept_without_bytes(tmp_path: Path) -> None:
    from moto.s3.models import FakeKey

    key = FakeKey("k", b"the bytes", account_id="123456789012", region_name="us-east-1")
    key.dispose()
    again = copied(key, tmp_path)

    assert isinstance(again._value_buffer, StoredBody)
    assert again.disposed
    assert list(tmp_path.iterdir()) == []


def test_new_home_has_no_state(state: MotoState) -> None:
    assert state.load() is False


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "first line is not JSON", id="empty"),
        pytest.param(b"\x80\x05K\x01.", "first line is not JSON", id="something else"),
        pytest.param(
            json.dumps({"format": 99, "moto": "1"}).encode() + b"\n", "format 99", id="another format"
        ),
        pytest.param(json.dumps({"format": 1, "moto": "1"}).encode() + b"\n", "moto 1,", id="another moto"),
    ],
)
def test_state_that_is_not_ours_is_refused(
    tmp_path: Path, state: MotoState, content: bytes, words: str
) -> None:
    (tmp_path / "aws/snapshot").write_bytes(content)

    with pytest.raises(StateUnreadable, match=words) as refused:
        state.load()
    assert f"delete {tmp_path / 'aws'} to begin anew" in str(refused.value)
    assert (tmp_path / "aws/snapshot").read_bytes() == content


def test_cut_off_state_is_refused(tmp_path: Path, state: MotoState) -> None:
    state.save()
    whole = (tmp_path / "aws/snapshot").read_bytes()
    (tmp_path / "aws/snapshot").write_bytes(whole[:-1])

    with pytest.raises(StateUnreadable, match="is damaged"):
        state.load()


def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    runtime = Runtime(settings=Settings(home=tmp_path), endpoint_url="")
    state = MotoState(runtime)

    state.save_if_changed()
    assert not (tmp_path / "aws/snapshot").exists()

    with runtime.changing():
        pass
    state.save_if_changed()
    assert pickle.loads((tmp_path / "aws/snapshot").read_bytes().partition(b"\n")[2]) is not None
