"""Waiting for a file system."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from airflow_smd.aws.lustre import FileSystems
from airflow_smd.triggers.lustre import DeletionTrigger, FileSystemTrigger
from tests.fakes.lustre import FakeFsx
from tests.unit.aws.test_lustre import OURS, URI, request

WAIT: dict[str, Any] = {"connection": {"aws_conn_id": "none"}, "poll_seconds": 7.0, "deadline": 9.0}


@pytest.fixture
def fsx() -> FakeFsx:
    return FakeFsx()


def watching(fsx: FakeFsx, association: bool = False) -> FileSystemTrigger:
    file_systems = FileSystems(fsx)
    made = file_systems.create(request())
    association_id = None
    if association:
        fsx.settle()
        link = file_systems.link(made.file_system_id, "/dataset", URI, token="t", tags=OURS.tags)
        association_id = link.association_id
    trigger = FileSystemTrigger(file_system_id=made.file_system_id, association_id=association_id, **WAIT)
    trigger.file_systems = file_systems
    return trigger


@pytest.mark.parametrize("association", [False, True], ids=["a file system", "a link"])
def test_it_fires_once_the_thing_is_available(fsx: FakeFsx, association: bool) -> None:
    trigger = watching(fsx, association)
    assert trigger.look() is None

    fsx.settle()

    event = trigger.look()
    assert event
    assert (event["ready"], event["state"]) == (True, "AVAILABLE")


@pytest.mark.parametrize(
    ("state", "ready"),
    [
        pytest.param("UPDATING", True, id="updating can be used"),
        pytest.param("FAILED", False, id="failed"),
        pytest.param("MISCONFIGURED", False, id="misconfigured"),
        pytest.param("DELETING", False, id="being deleted by another"),
    ],
)
def test_it_fires_on_every_state_that_creation_ends_in(fsx: FakeFsx, state: str, ready: bool) -> None:
    trigger = watching(fsx)
    fsx.file_systems[trigger.file_system_id]["Lifecycle"] = state

    event = trigger.look()

    assert event
    assert event["ready"] is ready


def test_it_fires_when_the_file_system_is_gone(fsx: FakeFsx) -> None:
    trigger = watching(fsx)
    fsx.file_systems.clear()

    event = trigger.look()

    assert event
    assert (event["ready"], event["state"]) == (False, "gone")


@pytest.mark.parametrize(
    "trigger",
    [
        pytest.param(FileSystemTrigger(file_system_id="fs-1", association_id="dra-1", **WAIT), id="a link"),
        pytest.param(DeletionTrigger(file_system_ids=["fs-1", "fs-2"], **WAIT), id="a deletion"),
    ],
)
def test_the_triggerer_rebuilds_the_same_trigger(trigger: Any) -> None:
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")

    assert getattr(import_module(module), name)(**arguments).serialize() == (path, arguments)


def test_deletion_asks_again_for_what_fsx_refused(fsx: FakeFsx) -> None:
    """FSx refuses while a task is being cancelled, and while it still creates."""
    file_systems = FileSystems(fsx)
    made = file_systems.create(request())
    fsx.settle()
    fsx.create_data_repository_task(FileSystemId=made.file_system_id, Type="EXPORT_TO_REPOSITORY")
    trigger = DeletionTrigger(file_system_ids=[made.file_system_id], **WAIT)
    trigger.file_systems = file_systems

    looks = []
    for _ in range(3):
        looks.append(trigger.look())
        fsx.settle()

    assert looks == [None, None, {"deleted": [made.file_system_id]}]
