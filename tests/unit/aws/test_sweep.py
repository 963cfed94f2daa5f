"""Only what carries our tags and costs is found, with few calls of the APIs that allow few."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import botocore.session
import pytest
from botocore.exceptions import ClientError

from airflow_smd.aws.image import NAME_VARIABLE, TAGS_VARIABLE
from airflow_smd.aws.sweep import LONGEST_BUILD_SECONDS, BilledThings
from airflow_smd.domain.cost import CostLine
from airflow_smd.domain.identity import TaskIdentity
from airflow_smd.domain.sweep import Kind, Thing
from airflow_smd.errors import FileSystemLate
from tests.fakes.lustre import FakeFsx
from tests.unit.aws.test_lustre import request

NOW = datetime(2026, 1, 2, tzinfo=UTC)
OURS = TaskIdentity(dag_id="retrain", run_id="r1", task_id="train")
JOB = OURS.attempt_name(1)
TAGS = [{"Key": key, "Value": value} for key, value in OURS.tags.items()]
FILE_SYSTEM = {
    "FileSystemId": "fs-01234567",
    "FileSystemType": "LUSTRE",
    "Lifecycle": "AVAILABLE",
    "CreationTime": NOW,
    "StorageCapacity": 1200,
    "StorageType": "SSD",
    "Tags": TAGS,
    "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
}


class Client:
    """A boto3 client whose answers are given, page by page, and whose calls are noted."""

    def __init__(self, **answers):
        self.meta = SimpleNamespace(region_name="us-east-1")
        self.answers = answers
        self.calls = []

    def get_paginator(self, operation):
        def pages(**request):
            for page in self.answers[operation]:
                self.calls.append(operation)
                yield page

        return SimpleNamespace(paginate=pages)

    def __getattr__(self, operation):
        if operation not in self.answers:
            raise AttributeError(operation)

        def call(**request):
            self.calls.append(operation)
            return self.answers[operation](**request)

        return call


class Paced(BilledThings):
    """Counts how often it waited for its turn."""

    def __init__(self, **clients):
        self.turns = 0
        nothing = {"fsx": Client(), "sagemaker": Client(), "codebuild": Client()}
        super().__init__(**nothing | clients, pace=self.take_turn)

    def take_turn(self):
        self.turns += 1


def found(kind, **clients):
    return Paced(**clients).find(kind, now=NOW.timestamp())


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"Tags": []}, id="no tags"),
        pytest.param({"Tags": [{"Key": "team", "Value": "vision"}]}, id="tags of others"),
        pytest.param({"Lifecycle": "DELETING"}, id="going already"),
        pytest.param({"FileSystemType": "ONTAP"}, id="not Lustre"),
    ],
)
def test_other_file_systems_are_not_ours_to_sweep(changes):
    fsx = Client(
        describe_file_systems=[{"FileSystems": [FILE_SYSTEM | changes]}, {"FileSystems": [FILE_SYSTEM]}]
    )

    assert [thing.thing_id for thing in found(Kind.FILE_SYSTEM, fsx=fsx)] == ["fs-01234567"]


def test_a_file_system_costs_by_its_size_for_a_day():
    [thing] = found(Kind.FILE_SYSTEM, fsx=Client(describe_file_systems=[{"FileSystems": [FILE_SYSTEM]}]))

    assert thing.per_day.usd == pytest.approx(1200 * 0.14 * 24 / 730)
    assert thing.created_at == NOW.timestamp()
    assert thing.owner("") == OURS


@pytest.mark.parametrize(
    ("configuration", "known"),
    [
        pytest.param({"Mode": "AUTOMATIC", "Iops": 1500}, True, id="that come with it"),
        pytest.param({"Mode": "USER_PROVISIONED", "Iops": 12000}, False, id="that are bought on top"),
    ],
)
def test_metadata_iops_have_no_price(configuration, known):
    lustre = {
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": 125,
        "MetadataConfiguration": configuration,
    }
    fsx = Client(describe_file_systems=[{"FileSystems": [FILE_SYSTEM | {"LustreConfiguration": lustre}]}])

    [thing] = found(Kind.FILE_SYSTEM, fsx=fsx)

    assert (thing.per_day.usd is not None) is known


def training(name=JOB):
    arn = f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}"
    return {
        "TrainingJobName": name,
        "TrainingJobArn": arn,
        "CreationTime": NOW,
        "TrainingJobStatus": "InProgress",
    }


def described(status="InProgress"):
    resources = {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30}
    more = {"TrainingJobStatus": status, "SecondaryStatus": "Training", "ResourceConfig": resources}
    return lambda **request: training(request["TrainingJobName"]) | more


def sagemaker(*pages, tags=TAGS, status="InProgress"):
    return Client(
        list_training_jobs=[{"TrainingJobSummaries": page} for page in pages],
        list_tags=lambda **_: {"Tags": tags},
        describe_training_job=described(status),
    )


def test_tags_are_asked_for_only_where_the_name_looks_like_ours():
    client = sagemaker([training("their-job"), training()], [training("another-of-theirs")])

    [thing] = found(Kind.TRAINING_JOB, sagemaker=client)

    assert thing.thing_id == JOB
    assert client.calls.count("list_tags") == 1


def test_a_job_costs_all_its_instances_for_a_day():
    [thing] = found(Kind.TRAINING_JOB, sagemaker=sagemaker([training()]))

    assert "2 x ml.p4d.24xlarge x 86,400 s" in thing.per_day.basis
    assert thing.per_day.usd > 0


def test_a_name_like_ours_without_our_tags_is_not_ours():
    client = sagemaker([training()], tags=[{"Key": "team", "Value": "vision"}])

    assert found(Kind.TRAINING_JOB, sagemaker=client) == []


def test_a_job_that_ended_while_we_looked_is_not_found():
    assert found(Kind.TRAINING_JOB, sagemaker=sagemaker([training()], status="Completed")) == []


def test_a_job_that_went_while_we_looked_is_not_found():
    client = sagemaker([training()])

    def gone(**_request):
        raise ClientError({"Error": {"Code": "ResourceNotFound", "Message": ""}}, "ListTags")

    client.answers["list_tags"] = gone

    assert found(Kind.TRAINING_JOB, sagemaker=client) == []


def test_every_call_of_sagemaker_waits_for_its_turn():
    client = sagemaker([training(), training("their-job")], [training()])
    things = Paced(sagemaker=client)

    things.find(Kind.TRAINING_JOB, now=NOW.timestamp())

    assert things.turns >= len(client.calls) == 6


def build(build_id, *, age_seconds=0.0, status="IN_PROGRESS", **variables):
    started = datetime.fromtimestamp(NOW.timestamp() - age_seconds, UTC)
    listed = [{"name": name, "value": value} for name, value in variables.items()]
    environment = {"computeType": "BUILD_GENERAL1_LARGE", "environmentVariables": listed}
    return {"id": build_id, "buildStatus": status, "startTime": started, "environment": environment}


def codebuild(*pages):
    by_id = {each["id"]: each for page in pages for each in page}
    return Client(
        list_builds=[{"ids": [each["id"] for each in page]} for page in pages],
        batch_get_builds=lambda ids: {"builds": [by_id[each] for each in ids]},
    )


def test_a_build_tells_its_run_in_its_environment():
    ours = {NAME_VARIABLE: OURS.base_name, TAGS_VARIABLE: json.dumps(OURS.tags)}
    client = codebuild([build("p:1", **ours), build("p:2"), build("p:3", status="SUCCEEDED", **ours)])

    [thing] = found(Kind.BUILD, codebuild=client)

    assert thing.thing_id == "p:1"
    assert thing.owner("") == OURS
    assert thing.per_day.usd is None


@pytest.mark.parametrize("text", ["", "no JSON", "[1]"], ids=["empty", "no JSON", "not a mapping"])
def test_a_build_whose_run_cannot_be_read_is_found_and_of_nobody(text):
    client = codebuild([build("p:1", **{NAME_VARIABLE: OURS.base_name, TAGS_VARIABLE: text})])

    [thing] = found(Kind.BUILD, codebuild=client)

    assert thing.owner("") is None


def test_builds_are_listed_only_as_far_back_as_one_can_run():
    client = codebuild([build("p:2")], [build("p:1", age_seconds=LONGEST_BUILD_SECONDS + 1)], [build("p:0")])

    found(Kind.BUILD, codebuild=client)

    assert client.calls.count("list_builds") == 2


def test_no_builds_at_all_is_no_error():
    assert found(Kind.BUILD, codebuild=codebuild([])) == []


@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("fsx", "DescribeFileSystems"),
        ("sagemaker", "ListTrainingJobs"),
        ("sagemaker", "ListProcessingJobs"),
        ("codebuild", "ListBuilds"),
    ],
)
def test_botocore_knows_the_pages_that_we_ask_for(service, operation):
    assert operation in botocore.session.get_session().get_paginator_model(service)._paginator_config


@pytest.fixture
def fsx():
    return FakeFsx()


@pytest.fixture
def left(fsx):
    """Return a file system that somebody left."""
    file_system_id = fsx.create_file_system(**request())["FileSystem"]["FileSystemId"]
    fsx.settle()
    cost = CostLine(what="file system", usd=None, basis="")
    return Thing(kind=Kind.FILE_SYSTEM, thing_id=file_system_id, tags=OURS.tags, created_at=0.0, per_day=cost)


def test_a_file_system_is_being_deleted_then_gone(fsx, left):
    things = Paced(fsx=fsx)

    assert things.remove(left) == "DELETING"
    fsx.settle()
    assert things.remove(left) == "gone"


def test_a_file_system_that_fsx_does_not_delete_yet_is_not_told_to_be_removed(fsx, left):
    fsx.create_data_repository_task(FileSystemId=left.thing_id, Type="EXPORT_TO_REPOSITORY")
    things = Paced(fsx=fsx)

    with pytest.raises(FileSystemLate, match=left.thing_id):
        things.remove(left)

    fsx.settle()
    assert things.remove(left) == "DELETING"
