"""Whose a file system is, and what its task does next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_smd.domain.identity import TaskIdentity
from airflow_smd.domain.lustre.lifecycle import (
    Attach,
    Create,
    FileSystem,
    FileSystemLifecycle,
    creation_timeout_seconds,
    made_by,
    next_step,
)

OURS = TaskIdentity(dag_id="d", run_id="r", task_id="create")


def file_system(number: int, lifecycle: str = "AVAILABLE", **changes: Any) -> FileSystem:
    identity = changes.pop("identity", OURS)
    made = FileSystem(
        file_system_id=f"fs-{number}",
        lifecycle=FileSystemLifecycle(lifecycle),
        mount_name="abcd1234",
        dns_name="",
        deployment_type="SCRATCH_2",
        storage_type="SSD",
        storage_capacity_gib=1200,
        per_unit_storage_throughput=None,
        type_version="2.15",
        subnet_ids=(),
        tags=identity.tags,
        created_at=float(number),
    )
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("found", "step"),
    [
        pytest.param([], Create(OURS.attempt_name(1)), id="nothing there: the first"),
        pytest.param([file_system(1, "FAILED")], Create(OURS.attempt_name(2)), id="failed: the second"),
        pytest.param([file_system(1, "DELETING")], Create(OURS.attempt_name(2)), id="going: the second"),
        pytest.param([file_system(1, "CREATING")], Attach(file_system(1, "CREATING"), ()), id="creating"),
        pytest.param([file_system(1, "UPDATING")], Attach(file_system(1, "UPDATING"), ()), id="updating"),
        pytest.param(
            [file_system(2), file_system(1)],
            Attach(file_system(1), (file_system(2),)),
            id="two: the older, and the other goes",
        ),
        pytest.param(
            [file_system(1, identity=replace(OURS, generation=2))],
            Create(OURS.attempt_name(1)),
            id="of another clear",
        ),
    ],
)
def test_the_next_step_follows_what_lives(found: list[FileSystem], step: Attach | Create) -> None:
    assert next_step(OURS, found) == step


def test_a_token_is_as_fsx_wants_it() -> None:
    long = TaskIdentity(dag_id="d" * 200, run_id="r" * 200, task_id="t" * 200)

    step = next_step(long, [])

    assert isinstance(step, Create)
    assert 1 <= len(step.token) <= 63


def test_tags_of_every_generation_are_ours() -> None:
    assert made_by(OURS, replace(OURS, generation=3).tags)


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param({}, id="no tags"),
        pytest.param({"airflow-smd:name": OURS.base_name}, id="only the name"),
        pytest.param({**OURS.tags, "airflow:generation": "one"}, id="a generation that is no number"),
        pytest.param({**OURS.tags, "airflow:generation": "2"}, id="tags that do not fit the name"),
        pytest.param(replace(OURS, deployment="other").tags, id="another deployment"),
        pytest.param(replace(OURS, map_index=1).tags, id="another map index"),
    ],
)
def test_other_tags_are_not_ours(tags: dict[str, str]) -> None:
    assert not made_by(OURS, tags)


def test_the_timeout_grows_with_the_size() -> None:
    """72 TB took about 12 minutes, which a fixed limit of 10 minutes cut off (aws-fsx-csi-driver #382)."""
    assert creation_timeout_seconds(1200) == 1800
    assert creation_timeout_seconds(100_800) > 2000


def test_the_directory_path_begins_with_the_mount_name() -> None:
    source = file_system(1).data_source("/dataset", "rw")["FileSystemDataSource"]

    assert (source["DirectoryPath"], source["FileSystemAccessMode"]) == ("/abcd1234/dataset", "rw")


def test_the_root_of_a_file_system_is_its_mount_name() -> None:
    assert file_system(1).data_source("")["FileSystemDataSource"]["DirectoryPath"] == "/abcd1234"
