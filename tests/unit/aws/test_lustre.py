"""What FSx answers, in our words."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_smd.aws.lustre import FileSystems
from airflow_smd.domain.identity import TaskIdentity
from airflow_smd.domain.lustre.lifecycle import FileSystemLifecycle, RepositoryLifecycle
from airflow_smd.errors import (
    FileSystemLimitReached,
    FileSystemRefused,
    FileSystemTokenTaken,
    UnexpectedAnswer,
)
from tests.fakes.lustre import BUCKET, SUBNET, FakeFsx, refuse

OURS = TaskIdentity(dag_id="d", run_id="r", task_id="create")
URI = f"s3://{BUCKET}/digits/"


@pytest.fixture
def fsx() -> FakeFsx:
    return FakeFsx()


def request(identity: TaskIdentity = OURS, **changes: Any) -> dict[str, Any]:
    return {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": "2.15",
        "StorageCapacity": 1200,
        "SubnetIds": [SUBNET],
        "ClientRequestToken": identity.attempt_name(1),
        "Tags": [{"Key": key, "Value": value} for key, value in identity.tags.items()],
        "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
        **changes,
    }


def test_a_new_file_system_is_creating_and_has_its_mount_name(fsx: FakeFsx) -> None:
    made = FileSystems(fsx).create(request())

    assert made.lifecycle is FileSystemLifecycle.CREATING
    assert (made.mount_name, made.deployment_type, made.storage_capacity_gib) == (
        "abcd1234",
        "SCRATCH_2",
        1200,
    )


def test_a_file_system_that_is_gone_is_none(fsx: FakeFsx) -> None:
    assert FileSystems(fsx).look("fs-0aaaaaaaaaaaaaaa0") is None


def test_a_state_that_we_do_not_know_is_an_error(fsx: FakeFsx) -> None:
    made = FileSystems(fsx).create(request())
    fsx.file_systems[made.file_system_id]["Lifecycle"] = "HIBERNATING"

    with pytest.raises(UnexpectedAnswer, match="HIBERNATING"):
        FileSystems(fsx).look(made.file_system_id)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"run_id": "r2"}, id="another run"),
        pytest.param({"dag_id": "d2"}, id="another DAG"),
        pytest.param({"map_index": 3}, id="another mapped task"),
        pytest.param({"deployment": "staging"}, id="another Airflow with the same DAG and run"),
    ],
)
def test_file_systems_of_others_are_not_ours(fsx: FakeFsx, other: dict[str, Any]) -> None:
    identity = TaskIdentity(**{"dag_id": "d", "run_id": "r", "task_id": "create", **other})
    FileSystems(fsx).create(request(identity))

    assert not FileSystems(fsx).made_by(OURS)


def test_a_file_system_without_our_tags_is_not_ours(fsx: FakeFsx) -> None:
    FileSystems(fsx).create({**request(), "Tags": [{"Key": "airflow-smd:name", "Value": OURS.base_name}]})

    assert not FileSystems(fsx).made_by(OURS)


def test_a_file_system_of_another_kind_is_passed_over(fsx: FakeFsx) -> None:
    made = FileSystems(fsx).create(request())
    fsx.file_systems[made.file_system_id] |= {"FileSystemType": "WINDOWS", "Lifecycle": "AVAILABLE"}

    assert not FileSystems(fsx).made_by(OURS)


def test_the_same_token_with_another_size_is_taken(fsx: FakeFsx) -> None:
    FileSystems(fsx).create(request())

    with pytest.raises(FileSystemTokenTaken):
        FileSystems(fsx).create(request(StorageCapacity=2400))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        pytest.param("BadRequest", FileSystemRefused, id="bad request"),
        pytest.param("InvalidNetworkSettings", FileSystemRefused, id="network"),
        pytest.param("InvalidPerUnitStorageThroughput", FileSystemRefused, id="tier"),
        pytest.param("ServiceLimitExceeded", FileSystemLimitReached, id="quota"),
    ],
)
def test_a_refusal_is_an_error_of_its_kind(fsx: FakeFsx, code: str, error: type[Exception]) -> None:
    def create(**_: Any) -> Any:
        raise refuse("CreateFileSystem", code, "no")

    fsx.create_file_system = create  # type: ignore[method-assign]

    with pytest.raises(error, match="no"):
        FileSystems(fsx).create(request())


def available(fsx: FakeFsx) -> str:
    made = FileSystems(fsx).create(request())
    fsx.settle()
    return made.file_system_id


def test_linking_twice_makes_one_link(fsx: FakeFsx) -> None:
    file_system_id = available(fsx)
    links = [
        FileSystems(fsx).link(file_system_id, "/dataset", uri, token="t", tags=OURS.tags)
        for uri in (URI, URI.rstrip("/"))
    ]

    assert links[0] == links[1]
    assert links[0].lifecycle is RepositoryLifecycle.CREATING


def test_a_link_over_another_prefix_is_refused(fsx: FakeFsx) -> None:
    file_system_id = available(fsx)
    FileSystems(fsx).link(file_system_id, "/dataset", URI, token="t", tags=OURS.tags)

    with pytest.raises(FileSystemRefused, match="overlaps"):
        FileSystems(fsx).link(file_system_id, "/dataset", f"s3://{BUCKET}/other/", token="u", tags=OURS.tags)


def test_a_link_that_is_gone_is_none(fsx: FakeFsx) -> None:
    assert FileSystems(fsx).look_link("dra-0aaaaaaaaaaaaaaa0") is None


def test_removal_goes_step_by_step_until_nothing_is_left(fsx: FakeFsx) -> None:
    file_systems, file_system_id = FileSystems(fsx), available(fsx)

    states = [file_systems.remove(file_system_id), file_systems.remove(file_system_id)]
    fsx.settle()

    assert states == ["DELETING", "DELETING"]
    assert file_systems.remove(file_system_id) is None


def test_removal_says_what_fsx_still_waits_for(fsx: FakeFsx) -> None:
    file_systems, file_system_id = FileSystems(fsx), available(fsx)
    fsx.create_data_repository_task(FileSystemId=file_system_id, Type="EXPORT_TO_REPOSITORY")

    assert "task is running" in (file_systems.remove(file_system_id) or "")
    fsx.settle()
    assert file_systems.remove(file_system_id) == "DELETING"
