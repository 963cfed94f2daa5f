"""What the sandbox's FSx does beyond answering: real directories, restarts, updates, tasks, faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.ec2.models import ec2_backends

from airflow_smd.sandbox import fsx
from airflow_smd.sandbox.faults import Fault, FaultKind
from airflow_smd.sandbox.fsx_links import Links
from airflow_smd.sandbox.fsx_rules import Refused
from airflow_smd.sandbox.fsx_service import Service
from airflow_smd.sandbox.fsx_state import State
from airflow_smd.sandbox.fsx_tasks import Tasks
from airflow_smd.sandbox.runtime import ACCOUNT_ID, Runtime, Settings

REGION = "us-east-1"
URI = "s3://data-bucket/digits/"


class Here:
    """The parts of one sandbox's FSx, without a server between them and the test."""

    def __init__(self, home: Path, seconds: float = 0.2) -> None:
        settings = Settings(home=home, file_system_seconds=seconds)
        self.runtime = Runtime(settings=settings, endpoint_url="")
        fsx.register(self.runtime)
        self.service: Service = fsx.Responses.service
        self.links: Links = fsx.Responses.links
        self.tasks: Tasks = fsx.Responses.tasks
        self.state: State = fsx.Responses.state
        self.s3 = boto3.client("s3", region_name=REGION)
        subnets = boto3.client("ec2", region_name=REGION).describe_subnets()["Subnets"]
        self.subnet_id = subnets[0]["SubnetId"]

    def create(self, **changes: Any) -> str:
        request = {
            "FileSystemType": "LUSTRE",
            "FileSystemTypeVersion": "2.15",
            "StorageCapacity": 1200,
            "SubnetIds": [self.subnet_id],
            "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
            **changes,
        }
        return str(self.service.create_file_system(request, REGION)["FileSystem"]["FileSystemId"])

    def look(self, file_system_id: str) -> dict[str, Any]:
        answer = self.service.describe_file_systems({"FileSystemIds": [file_system_id]}, REGION)
        found: dict[str, Any] = answer["FileSystems"][0]
        return found

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "it does not happen"
            time.sleep(0.02)

    def available(self, **changes: Any) -> str:
        file_system_id = self.create(**changes)
        self.until(lambda: self.look(file_system_id)["Lifecycle"] == "AVAILABLE")
        return file_system_id

    def link(self, file_system_id: str, **changes: Any) -> Path:
        request = {
            "FileSystemId": file_system_id,
            "FileSystemPath": "/dataset",
            "DataRepositoryPath": URI,
            "BatchImportMetaDataOnCreate": True,
            **changes,
        }
        answer = self.links.create(request, self.service.find(file_system_id))["Association"]
        self.until(lambda: bool(answer["Lifecycle"] != "CREATING"))
        assert answer["Lifecycle"] == "AVAILABLE"
        return self.service.directory(file_system_id) / request["FileSystemPath"].lstrip("/")

    def task(self, file_system_id: str, kind: str, **more: Any) -> dict[str, Any]:
        request = {"FileSystemId": file_system_id, "Type": kind, "Report": {"Enabled": False}, **more}
        answer: dict[str, Any] = self.tasks.create(request, self.service.find(file_system_id))[
            "DataRepositoryTask"
        ]
        self.until(lambda: "EndTime" in answer)
        return answer

    def path(self, file_system_id: str, below: str = "") -> Path:
        mount_name = self.look(file_system_id)["LustreConfiguration"]["MountName"]
        return self.runtime.file_system_directory(file_system_id, f"/{mount_name}{below}")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    from moto.fsx import urls

    monkeypatch.setitem(urls.url_paths, "{0}/$", urls.url_paths["{0}/$"])
    with mock_aws():
        s3 = boto3.client("s3", region_name=REGION)
        s3.create_bucket(Bucket="data-bucket")
        for name, body in {"a.tar": b"a", "deep/er/b.tar": b"bb"}.items():
            s3.put_object(Bucket="data-bucket", Key=f"digits/{name}", Body=body)
        s3.put_object(Bucket="data-bucket", Key="elsewhere.txt", Body=b"not imported")
        ec2_backends[ACCOUNT_ID][REGION]  # the default VPC
        yield tmp_path


@pytest.fixture
def here(home: Path) -> Iterator[Here]:
    started = _started(home)
    yield started
    started.runtime.stop()


def _started(home: Path, **settings: Any) -> Here:
    started = Here(home, **settings)
    started.links.s3 = started.s3
    return started


# -- directories -------------------------------------------------------------------------------------------


def test_a_link_fills_the_real_directory_with_the_objects(here: Here) -> None:
    file_system_id = here.available()

    directory = here.link(file_system_id)

    files = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert files == {"a.tar", "deep/er/b.tar"}
    assert here.path(file_system_id, "/dataset") == directory


def test_without_the_import_of_names_the_directory_stays_empty(here: Here) -> None:
    directory = here.link(here.available(), BatchImportMetaDataOnCreate=False)

    assert list(directory.iterdir()) == []


def test_an_import_path_keeps_the_whole_keys(here: Here) -> None:
    lustre = {"DeploymentType": "SCRATCH_1", "ImportPath": URI}

    file_system_id = here.available(LustreConfiguration=lustre)

    assert (here.path(file_system_id, "/digits") / "a.tar").read_bytes() == b"a"


def test_a_key_that_leads_out_of_the_file_system_is_left_out(here: Here) -> None:
    here.s3.put_object(Bucket="data-bucket", Key="evil/../../../../out.txt", Body=b"x")
    file_system_id = here.available()
    request = {
        "FileSystemId": file_system_id,
        "FileSystemPath": "/dataset",
        "DataRepositoryPath": "s3://data-bucket/evil/",
        "BatchImportMetaDataOnCreate": True,
    }

    answer = here.links.create(request, here.service.find(file_system_id))["Association"]

    here.until(lambda: bool(answer["Lifecycle"] == "MISCONFIGURED"))
    assert "leads out" in answer["FailureDetails"]["Message"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("/fsx/dataset", "must begin with its mount name", id="another mount name"),
        pytest.param("dataset", "must begin with its mount name", id="no slash"),
        pytest.param("/{mount}/nothing", "has no directory /nothing", id="nothing there"),
    ],
)
def test_a_wrong_directory_path_says_why(here: Here, path: str, message: str) -> None:
    file_system_id = here.available()
    mount_name = here.look(file_system_id)["LustreConfiguration"]["MountName"]

    with pytest.raises(KeyError, match=message):
        here.runtime.file_system_directory(file_system_id, path.format(mount=mount_name))


def test_a_file_system_that_is_not_there_has_no_directory(here: Here) -> None:
    with pytest.raises(KeyError, match="no file system"):
        here.runtime.file_system_directory("fs-0aaaaaaaaaaaaaaa0", "/fsx")


def test_deletion_gives_back_the_directory_and_the_addresses(here: Here) -> None:
    ec2 = boto3.client("ec2", region_name=REGION)

    def free() -> int:
        [subnet] = ec2.describe_subnets(SubnetIds=[here.subnet_id])["Subnets"]
        return int(subnet["AvailableIpAddressCount"])

    before = free()
    file_system_id = here.available(StorageCapacity=4800)
    here.link(file_system_id)
    taken = before - free()

    here.service.delete_file_system({"FileSystemId": file_system_id}, REGION)
    here.until(lambda: not here.service.describe_file_systems({}, REGION)["FileSystems"])

    assert taken == 3  # two object servers and one for metadata
    assert free() == before
    assert not here.service.directory(file_system_id).exists()
    assert not here.state.associations


# -- restarts ----------------------------------------------------------------------------------------------


def test_everything_is_there_again_after_a_restart(home: Path) -> None:
    first = _started(home)
    file_system_id = first.available(ClientRequestToken="t")
    first.link(file_system_id)
    first.runtime.stop()

    second = _started(home)

    assert second.look(file_system_id)["Lifecycle"] == "AVAILABLE"
    assert (second.path(file_system_id, "/dataset") / "a.tar").read_bytes() == b"a"
    assert second.create(ClientRequestToken="t") == file_system_id
    second.runtime.stop()


def test_a_link_that_a_stop_cut_off_is_filled_by_the_next_run(home: Path) -> None:
    first = _started(home)
    file_system_id = first.available()
    first.runtime.faults.add(Fault(kind=FaultKind.SLOW_CREATE, options={"seconds": 60.0}))
    request = {
        "FileSystemId": file_system_id,
        "FileSystemPath": "/dataset",
        "DataRepositoryPath": URI,
        "BatchImportMetaDataOnCreate": True,
    }
    first.links.create(request, first.service.find(file_system_id))
    first.runtime.stop()
    for record in first.state.associations.values():
        record["not_before"] = 0.0
    first.state.save()

    second = Here(home)
    second.links.s3 = second.s3
    second.links.resume()

    def filled() -> bool:
        return all(each["answer"]["Lifecycle"] == "AVAILABLE" for each in second.state.associations.values())

    second.until(filled)
    assert (second.path(file_system_id, "/dataset") / "a.tar").read_bytes() == b"a"
    second.runtime.stop()


# -- updates -----------------------------------------------------------------------------------------------


def test_growing_goes_through_the_states_that_fsx_shows(here: Here) -> None:
    file_system_id = here.available()

    update = {"FileSystemId": file_system_id, "StorageCapacity": 2400}
    answer = here.service.update_file_system(update, REGION)["FileSystem"]
    assert (answer["Lifecycle"], answer["StorageCapacity"]) == ("UPDATING", 1200)

    here.until(lambda: here.look(file_system_id)["StorageCapacity"] == 2400)
    assert here.look(file_system_id)["Lifecycle"] == "AVAILABLE"
    here.until(
        lambda: all(
            each["Status"] == "COMPLETED" for each in here.look(file_system_id)["AdministrativeActions"]
        )
    )


TIERED = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125}


@pytest.mark.parametrize(
    ("lustre", "change", "message"),
    [
        pytest.param(
            {"DeploymentType": "SCRATCH_2"}, {"StorageCapacity": 1200}, "greater than", id="not larger"
        ),
        pytest.param(
            {"DeploymentType": "SCRATCH_2"}, {"StorageCapacity": 3600}, "multiple of 2400", id="step"
        ),
        pytest.param(
            {"DeploymentType": "SCRATCH_1"}, {"StorageCapacity": 3600}, "cannot be changed", id="old"
        ),
        pytest.param(
            {"DeploymentType": "SCRATCH_2"},
            {"LustreConfiguration": {"PerUnitStorageThroughput": 125}},
            "cannot be changed",
            id="a tier for scratch",
        ),
        pytest.param(
            TIERED,
            {"LustreConfiguration": {"PerUnitStorageThroughput": 200}},
            "throughput is invalid",
            id="tier",
        ),
        pytest.param(
            TIERED,
            {"LustreConfiguration": {"MetadataConfiguration": {"Mode": "AUTOMATIC"}}},
            "cannot be added",
            id="metadata afterwards",
        ),
        pytest.param(TIERED, {"FileSystemTypeVersion": "2.12"}, "Lustre version", id="an older version"),
    ],
)
def test_an_update_that_the_type_does_not_allow_is_refused(
    here: Here, lustre: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    file_system_id = here.available(LustreConfiguration=lustre)

    with pytest.raises(Refused) as refused:
        here.service.update_file_system({"FileSystemId": file_system_id, **change}, REGION)

    assert message in refused.value.message


def test_a_second_update_waits_for_the_first_and_then_for_six_hours(here: Here) -> None:
    file_system_id = here.available(LustreConfiguration=TIERED)
    lustre = {"LustreConfiguration": {"PerUnitStorageThroughput": 250}}
    here.service.update_file_system({"FileSystemId": file_system_id, **lustre}, REGION)

    with pytest.raises(Refused) as during:
        here.service.update_file_system({"FileSystemId": file_system_id, **lustre}, REGION)
    here.until(lambda: here.look(file_system_id)["Lifecycle"] == "AVAILABLE")
    with pytest.raises(Refused) as after:
        here.service.update_file_system({"FileSystemId": file_system_id, **lustre}, REGION)

    assert "already in progress" in during.value.message
    assert "6 hours" in after.value.message
    assert here.look(file_system_id)["LustreConfiguration"]["PerUnitStorageThroughput"] == 250


# -- tasks -------------------------------------------------------------------------------------------------


def test_an_export_writes_what_is_new_to_s3(here: Here) -> None:
    file_system_id = here.available()
    directory = here.link(file_system_id)
    (directory / "checkpoint.bin").write_bytes(b"weights")

    task = here.task(file_system_id, "EXPORT_TO_REPOSITORY", Paths=["dataset"])

    assert (task["Lifecycle"], task["Status"]["SucceededCount"]) == ("SUCCEEDED", 3)
    body = here.s3.get_object(Bucket="data-bucket", Key="digits/checkpoint.bin")["Body"].read()
    assert body == b"weights"


def test_an_import_brings_what_came_later(here: Here) -> None:
    file_system_id = here.available()
    directory = here.link(file_system_id)
    here.s3.put_object(Bucket="data-bucket", Key="digits/new.tar", Body=b"new")

    task = here.task(file_system_id, "IMPORT_METADATA_FROM_REPOSITORY", Paths=[f"{URI}new.tar"])

    assert task["Lifecycle"] == "SUCCEEDED"
    assert (directory / "new.tar").read_bytes() == b"new"


def test_a_release_fails_for_files_that_s3_lacks_and_reports_them(here: Here) -> None:
    file_system_id = here.available()
    directory = here.link(file_system_id)
    (directory / "only-here.bin").write_bytes(b"x")
    report = {
        "Enabled": True,
        "Path": f"{URI}reports",
        "Format": "REPORT_CSV_20191124",
        "Scope": "FAILED_FILES_ONLY",
    }

    task = here.task(
        file_system_id,
        "RELEASE_DATA_FROM_FILESYSTEM",
        ReleaseConfiguration={"DurationSinceLastAccess": {"Unit": "DAYS", "Value": 0}},
        Report=report,
    )

    assert (task["Lifecycle"], task["Status"]["FailedCount"]) == ("FAILED", 1)
    key = f"digits/reports/{task['TaskId']}/failures.csv"
    assert b"only-here.bin" in here.s3.get_object(Bucket="data-bucket", Key=key)["Body"].read()


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        pytest.param({"Type": "AUTO_RELEASE_DATA"}, "BadRequest", id="a cache's task"),
        pytest.param({"Type": "RELEASE_DATA_FROM_FILESYSTEM"}, "BadRequest", id="release without a duration"),
        pytest.param({"Report": {"Enabled": True}}, "BadRequest", id="a report without a path"),
        pytest.param(
            {
                "Report": {
                    "Enabled": True,
                    "Path": "s3://other/",
                    "Format": "REPORT_CSV_20191124",
                    "Scope": "FAILED_FILES_ONLY",
                }
            },
            "BadRequest",
            id="a report elsewhere",
        ),
    ],
)
def test_a_task_that_fsx_refuses_is_refused(here: Here, request_: dict[str, Any], code: str) -> None:
    file_system_id = here.available()
    here.link(file_system_id)
    request = {
        "FileSystemId": file_system_id,
        "Type": "EXPORT_TO_REPOSITORY",
        "Report": {"Enabled": False},
        **request_,
    }

    with pytest.raises(Refused) as refused:
        here.tasks.create(request, here.service.find(file_system_id))

    assert refused.value.error_type == code


def test_only_one_task_runs_at_a_time_and_it_can_be_cancelled(home: Path) -> None:
    here = _started(home, seconds=0.2)
    file_system_id = here.available()
    here.link(file_system_id)
    request = {"FileSystemId": file_system_id, "Type": "EXPORT_TO_REPOSITORY", "Report": {"Enabled": False}}
    owner = here.service.find(file_system_id)
    task = here.tasks.create(request, owner)["DataRepositoryTask"]

    with pytest.raises(Refused) as refused:
        here.tasks.create(request, owner)
    here.tasks.cancel(task["TaskId"])
    here.until(lambda: bool(task["Lifecycle"] == "CANCELED"))

    assert refused.value.error_type == "DataRepositoryTaskExecuting"
    with pytest.raises(Refused) as ended:
        here.tasks.cancel(task["TaskId"])
    assert ended.value.error_type == "DataRepositoryTaskEnded"
    here.runtime.stop()


# -- faults and quotas -------------------------------------------------------------------------------------


def test_a_creation_fails_on_request(here: Here) -> None:
    here.runtime.faults.add(
        Fault(kind=FaultKind.FAIL, service="fsx", options={"after_seconds": 0.0, "message": "no capacity"})
    )

    answer = here.look(here.create())

    assert (answer["Lifecycle"], answer["FailureDetails"]["Message"]) == ("FAILED", "no capacity")


def test_a_creation_takes_longer_on_request(here: Here) -> None:
    here.runtime.faults.add(Fault(kind=FaultKind.SLOW_CREATE, service="fsx", options={"seconds": 3600.0}))
    slow, usual = here.create(), here.available()

    assert here.look(slow)["Lifecycle"] == "CREATING"
    assert here.look(usual)["Lifecycle"] == "AVAILABLE"


def test_the_accounts_storage_has_an_end(here: Here) -> None:
    here.create(StorageCapacity=98_400)

    with pytest.raises(Refused) as refused:
        here.create(StorageCapacity=4800)

    assert refused.value.error_type == "ServiceLimitExceeded"
    assert len(here.state.file_systems) == 1


def test_a_bucket_that_is_not_there_is_refused(here: Here) -> None:
    with pytest.raises(Refused) as refused:
        here.link(here.available(), DataRepositoryPath="s3://no-such-bucket/a/")

    assert "unable to validate access to the S3 bucket" in refused.value.message
