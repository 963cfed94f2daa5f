"""Orphans of every kind: the fake and the sandbox are swept alike."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_smd.aws.image import ImageBuilds
from airflow_smd.aws.lustre import FileSystems
from airflow_smd.aws.processing import ProcessingJobs
from airflow_smd.aws.sweep import BilledThings
from airflow_smd.aws.training import TrainingJobs
from airflow_smd.domain.identity import NAME_TAG, TaskIdentity
from airflow_smd.domain.image import BuildSettings
from airflow_smd.domain.sweep import Kind
from airflow_smd.operators.sweep import SweepOperator
from tests.conftest import Sandbox
from tests.fakes.sweep import FakeBilledThings, FakeRuns

HOUR = 3600.0
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.3.0-gpu-py311"
SLEEP = ["python3", "-c", "import time; time.sleep(600)"]
CLUSTER = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30}
LIMIT_SECONDS = 30


class OnFake:
    def __init__(self) -> None:
        self.things = FakeBilledThings()

    def leave(self, kind: Kind, name: str, tags: Mapping[str, str]) -> str:
        return self.things.put(kind, tags, thing_id=f"{kind}-{name}")

    def goes(self, kind: Kind, thing_id: str) -> bool:
        return thing_id not in self.things.running


class OnSandbox:
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.fsx, self.sagemaker = sandbox.client("fsx"), sandbox.client("sagemaker")
        self.codebuild = sandbox.client("codebuild")
        self.things = BilledThings(
            fsx=self.fsx, sagemaker=self.sagemaker, codebuild=self.codebuild, pace=lambda: None
        )
        self.bucket = f"sweep-{uuid.uuid4().hex[:8]}"
        sandbox.client("s3").create_bucket(Bucket=self.bucket)
        self.left: list[tuple[Kind, str]] = []

    def leave(self, kind: Kind, name: str, tags: Mapping[str, str]) -> str:
        """Start something that runs for minutes."""
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        thing_id = getattr(self, f"_{kind.replace(' ', '_')}")(name, listed)
        self.left.append((kind, thing_id))
        return str(thing_id)

    def goes(self, kind: Kind, thing_id: str) -> bool:
        """Tell whether it has ended or is ending."""
        if kind is Kind.FILE_SYSTEM:
            found = FileSystems(self.fsx).look(thing_id)
            return found is None or found.lifecycle == "DELETING"
        return self._state(kind, thing_id) not in ("InProgress", "IN_PROGRESS")

    def clear(self) -> None:
        for kind, thing_id in self.left:
            match kind:
                case Kind.FILE_SYSTEM:
                    FileSystems(self.fsx).remove(thing_id)
                case Kind.TRAINING_JOB:
                    TrainingJobs(self.sagemaker).stop(thing_id)
                case Kind.PROCESSING_JOB:
                    ProcessingJobs(self.sagemaker).stop(thing_id)
                case Kind.BUILD:
                    self.codebuild.stop_build(id=thing_id)

    def _state(self, kind: Kind, thing_id: str) -> str:
        match kind:
            case Kind.TRAINING_JOB:
                found = self.sagemaker.describe_training_job(TrainingJobName=thing_id)
                return str(found["TrainingJobStatus"])
            case Kind.PROCESSING_JOB:
                found = self.sagemaker.describe_processing_job(ProcessingJobName=thing_id)
                return str(found["ProcessingJobStatus"])
            case _:
                return str(self.codebuild.batch_get_builds(ids=[thing_id])["builds"][0]["buildStatus"])

    def _file_system(self, name: str, tags: list[dict[str, str]]) -> str:
        subnet = self.sandbox.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
        made = self.fsx.create_file_system(
            FileSystemType="LUSTRE",
            FileSystemTypeVersion="2.15",
            StorageCapacity=1200,
            SubnetIds=[subnet],
            ClientRequestToken=name,
            LustreConfiguration={"DeploymentType": "SCRATCH_2"},
            **({"Tags": tags} if tags else {}),
        )["FileSystem"]["FileSystemId"]
        deadline = time.monotonic() + LIMIT_SECONDS
        while FileSystems(self.fsx).look(made).lifecycle == "CREATING":  # type: ignore[union-attr]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return str(made)

    def _training_job(self, name: str, tags: list[dict[str, str]]) -> str:
        self.sagemaker.create_training_job(
            TrainingJobName=name,
            RoleArn=self.sandbox.role_arn,
            AlgorithmSpecification={
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": SLEEP,
            },
            OutputDataConfig={"S3OutputPath": f"s3://{self.bucket}/out"},
            ResourceConfig=CLUSTER,
            StoppingCondition={"MaxRuntimeInSeconds": 600},
            Tags=tags,
        )
        return name

    def _processing_job(self, name: str, tags: list[dict[str, str]]) -> str:
        self.sagemaker.create_processing_job(
            ProcessingJobName=name,
            RoleArn=self.sandbox.role_arn,
            AppSpecification={"ImageUri": IMAGE, "ContainerEntrypoint": SLEEP},
            ProcessingResources={"ClusterConfig": CLUSTER},
            Tags=tags,
        )
        return name

    def _build(self, name: str, tags: list[dict[str, str]]) -> str:
        settings = BuildSettings(role_arn=f"arn:aws:iam::{self.sandbox.account_id}:role/CodeBuild")
        builds = ImageBuilds(self.codebuild, self.sandbox.client("logs"), settings.project_name)
        builds.ensure_project(settings, {})
        spec = '{"version": 0.2, "phases": {"build": {"commands": ["sleep 600"]}}}'
        if not tags:
            request = {"projectName": settings.project_name, "sourceTypeOverride": "NO_SOURCE"}
            return str(self.codebuild.start_build(**request, buildspecOverride=spec)["build"]["id"])
        self.sandbox.client("s3").put_object(Bucket=self.bucket, Key="context.zip", Body=EMPTY_ZIP)
        by_key = {tag["Key"]: tag["Value"] for tag in tags}
        return builds.start(
            name=by_key[NAME_TAG],
            tag="tag",
            token=name,
            location=f"{self.bucket}/context.zip",
            build_spec=spec,
            settings=settings,
            tags=by_key,
        )


EMPTY_ZIP = b"PK\x05\x06" + bytes(18)


@pytest.fixture(params=["fake", "sandbox"])
def place(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "fake":
        yield OnFake()
        return
    on_sandbox = OnSandbox(request.getfixturevalue("sandbox"))
    yield on_sandbox
    on_sandbox.clear()


@pytest.fixture
def orphan() -> TaskIdentity:
    return TaskIdentity(dag_id="retrain", run_id=f"manual__{uuid.uuid4().hex}", task_id="leaves")


def sweep(place: Any, **arguments: Any) -> SweepOperator:
    operator = SweepOperator(task_id="sweep", deferrable=True, **arguments)
    operator.things = place.things
    return operator


def over(who: TaskIdentity, state: str = "failed") -> FakeRuns:
    return FakeRuns({(who.dag_id, who.run_id): state})


def told(report: Mapping[str, Any], thing_id: str) -> Any:
    return next(each for each in report["things"] if each["id"] == thing_id)


@pytest.mark.parametrize("kind", list(Kind))
def test_an_orphan_is_told_about_then_left_for_its_grace_then_removed(place, orphan, kind):
    thing_id = place.leave(kind, orphan.attempt_name(1), orphan.tags)
    context = {"ti": over(orphan)}

    report = sweep(place, grace_seconds=0).execute(context)
    assert told(report, thing_id)["action"] == "remove"
    assert told(report, thing_id)["tags"]["airflow:run_id"] == orphan.run_id
    assert not place.goes(kind, thing_id), "a dry run removes nothing"

    operator = sweep(place, dry_run=False, grace_seconds=HOUR)
    with pytest.raises(TaskDeferred) as deferral:
        operator.execute(context)
    assert not place.goes(kind, thing_id), "it is left for its grace"

    event = deferral.value.trigger.arguments() | {"first_seen": {thing_id: time.time() - HOUR}}
    assert operator.finish(context, event)["removed"] == [thing_id]
    assert place.goes(kind, thing_id)
    again = sweep(place, dry_run=False, grace_seconds=0).execute(context)
    assert again["removed"] == [], "what is going is not swept twice"


@pytest.mark.parametrize("kind", list(Kind))
def test_what_has_no_tags_of_ours_is_never_touched(place, orphan, kind):
    thing_id = place.leave(kind, orphan.attempt_name(1), {})

    report = sweep(place, dry_run=False, grace_seconds=0, time_to_live_seconds=0).execute(
        {"ti": over(orphan)}
    )

    assert thing_id not in {each["id"] for each in report["things"]}
    assert not place.goes(kind, thing_id)


@pytest.mark.parametrize("kind", [Kind.FILE_SYSTEM, Kind.TRAINING_JOB])
def test_what_a_living_run_uses_is_kept(place, orphan, kind):
    thing_id = place.leave(kind, orphan.attempt_name(1), orphan.tags)

    report = sweep(place, dry_run=False, grace_seconds=0).execute({"ti": over(orphan, "running")})

    assert told(report, thing_id)["action"] == "keep"
    assert not place.goes(kind, thing_id)


def test_a_file_system_and_a_job_say_what_they_cost_a_day(place, orphan):
    left = [
        place.leave(kind, orphan.attempt_name(1), orphan.tags)
        for kind in (Kind.FILE_SYSTEM, Kind.TRAINING_JOB)
    ]

    report = sweep(place).execute({"ti": over(orphan)})

    assert all(told(report, thing_id)["usd_per_day"] > 0 for thing_id in left)
    assert report["usd_per_day"] >= round(sum(told(report, each)["usd_per_day"] for each in left), 2)
