"""Images in the sandbox: really built, really pushed, really run."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.bases.operator import ExecutorSafeguard
from botocore.exceptions import ClientError

from airflow_smd.errors import ImageBuildFailed
from airflow_smd.operators.image import TrainingImageBuildOperator
from airflow_smd.sandbox import buildah, oci_run
from tests.conftest import Sandbox, start_sandbox, stop_sandbox

DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2.0-gpu-py310"
runs = pytest.mark.skipif(not oci_run.namespaces(), reason="this machine allows no namespaces")


@pytest.fixture(autouse=True)
def _execute_outside_a_task() -> Iterator[None]:
    ExecutorSafeguard.test_mode = True
    yield
    ExecutorSafeguard.test_mode = False


class Site:
    """A sandbox as a task sees it: through an Airflow connection."""

    def __init__(self, sandbox: Sandbox, code: Path) -> None:
        self.sandbox = sandbox
        self.code = code
        self.bucket = f"images-{uuid.uuid4().hex[:12]}"
        self.repository = f"digits-{uuid.uuid4().hex[:12]}"
        sandbox.client("s3").create_bucket(Bucket=self.bucket)
        (code / "train.py").write_text("print(1)\n")

    def task(self, **arguments: Any) -> TrainingImageBuildOperator:
        given = {
            "repository": self.repository,
            "work_uri": f"s3://{self.bucket}/run",
            "source_dir": str(self.code),
            "codebuild_role_arn": self.sandbox.role_arn,
            "deferrable": False,
            "poll_seconds": 0.1,
            **arguments,
        }
        return TrainingImageBuildOperator(task_id="image", **given)

    def own(self, *steps: str, base: str = DLC, **arguments: Any) -> dict[str, Any]:
        """Build a Dockerfile of these steps."""
        (self.code / "Dockerfile").write_text("\n".join([f"FROM {base}", *steps, ""]))
        return self.build(recipe={"dockerfile": "Dockerfile"}, **arguments)

    def build(self, **arguments: Any) -> dict[str, Any]:
        ti = SimpleNamespace(
            dag_id=self.bucket, run_id="run", task_id="image", map_index=-1, max_tries=0, try_number=1
        )
        result: dict[str, Any] = self.task(**arguments).execute({"ti": ti})  # type: ignore[typeddict-item]
        return result

    def run(self, image: Mapping[str, Any], script: str) -> dict[str, Any]:
        """Run a shell script in a training job on an image; return its description and what it printed."""
        name, sagemaker = f"job-{uuid.uuid4().hex[:8]}", self.sandbox.client("sagemaker")
        sagemaker.create_training_job(
            TrainingJobName=name,
            RoleArn=self.sandbox.role_arn,
            AlgorithmSpecification={
                "TrainingImage": image["image_uri"],
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["/bin/sh", "-c", script],
            },
            OutputDataConfig={"S3OutputPath": f"s3://{self.bucket}/out"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
        )
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            job: dict[str, Any] = sagemaker.describe_training_job(TrainingJobName=name)
            if job["TrainingJobStatus"] != "InProgress":
                break
            time.sleep(0.1)
        assert job["TrainingJobStatus"] == "Completed", job
        events = self.sandbox.client("logs").filter_log_events(
            logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{name}/"
        )["events"]
        return job | {"printed": [event["message"].rstrip("\n") for event in events]}


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name, value in sandbox.environment.items():
        monkeypatch.setenv(name, value)
    return Site(sandbox, tmp_path)


def test_the_second_build_of_the_same_content_is_one_call(site: Site) -> None:
    first = site.build(base_image=DLC)
    since = site.sandbox.control.calls()[-1]["number"]

    second = site.build(base_image=DLC)

    calls = site.sandbox.control.calls(since=since)
    asked = [f"{call['service']}.{call['operation']}" for call in calls]
    assert (first["built"], second["built"]) == (True, False)
    assert second["image_uri"] == first["image_uri"]
    assert asked == ["ecr.BatchGetImage"]


@runs
def test_a_job_runs_in_the_image_that_was_built(site: Site) -> None:
    image = site.own("RUN echo from the build > /opt/proof", "COPY train.py /opt/ml/code/", "ENV ANSWER=42")

    job = site.run(image, "cat /opt/proof; echo answer $ANSWER")

    assert {"from the build", "answer 42"} <= set(job["printed"])
    assert not Path("/opt/proof").exists()


@runs
def test_a_package_that_the_recipe_adds_is_there_for_the_job(site: Site) -> None:
    package = site.code / "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(package, "w") as wheel:
        wheel.writestr("greeting.py", "WORD = 'hello from the wheel'\n")
        info = "greeting-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    image = site.own(
        f"COPY {package.name} /srv/",
        f"RUN pip install --no-index /srv/{package.name} && python -c 'import greeting'",
    )

    job = site.run(image, "python3 -c 'import greeting; print(greeting.WORD)'")

    assert "hello from the wheel" in job["printed"]


@runs
def test_a_build_goes_on_from_an_image_that_was_pushed(site: Site) -> None:
    first = site.own("RUN echo one > /opt/one")

    second = site.own("RUN cat /opt/one > /opt/two", base=first["tag_uri"])

    assert second["built"]
    assert site.run(second, "cat /opt/two")["TrainingJobStatus"] == "Completed"


@runs
def test_a_failed_step_is_in_the_error_with_the_end_of_its_log(site: Site) -> None:
    with pytest.raises(ImageBuildFailed) as failed:
        site.own("RUN echo no such compiler && exit 7")

    assert failed.value.phase == "BUILD"
    assert "no such compiler" in failed.value.log_lines
    assert any("non-zero code: 7" in line for line in failed.value.log_lines)


def test_a_base_that_does_not_exist_fails_by_name(site: Site) -> None:
    base = DLC.replace("pytorch-training", "pytorch-trainning")

    with pytest.raises(ImageBuildFailed) as failed:
        site.build(base_image=base)

    assert any(f"manifest for {base} not found" in line for line in failed.value.log_lines)


def test_what_was_pushed_is_pulled_again_with_the_digest_that_ecr_names(site: Site) -> None:
    image = site.build(base_image=DLC)
    url = f"{site.sandbox.endpoint_url}/v2/{site.repository}/manifests/{image['digest']}"

    with urllib.request.urlopen(url) as answer:
        manifest = json.load(answer)

    ecr = site.sandbox.client("ecr").batch_get_image(
        repositoryName=site.repository, imageIds=[{"imageDigest": image["digest"]}]
    )
    assert json.loads(ecr["images"][0]["imageManifest"]) == manifest


class Builds:
    """CodeBuild with one project, asked directly."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.client = sandbox.client("codebuild")
        self.logs = sandbox.client("logs")
        self.project = f"project-{uuid.uuid4().hex[:8]}"
        self.client.create_project(
            name=self.project,
            source={"type": "NO_SOURCE", "buildspec": "version: 0.2\nphases: {build: {commands: [exit 3]}}"},
            artifacts={"type": "NO_ARTIFACTS"},
            environment={
                "type": "LINUX_CONTAINER",
                "image": "aws/codebuild/standard:7.0",
                "computeType": "BUILD_GENERAL1_SMALL",
                "environmentVariables": [{"name": "WHO", "value": "project"}],
            },
            serviceRole=sandbox.role_arn,
        )

    def start(self, phases: Mapping[str, Any] | None = None, **overrides: Any) -> str:
        if phases is not None:
            commands = {name: {"commands": list(lines)} for name, lines in phases.items()}
            overrides["buildspecOverride"] = json.dumps({"version": 0.2, "phases": commands})
        build_id: str = self.client.start_build(projectName=self.project, **overrides)["build"]["id"]
        return build_id

    def end(self, build_id: str) -> dict[str, Any]:
        give_up = time.monotonic() + 30
        while time.monotonic() < give_up:
            build: dict[str, Any] = self.client.batch_get_builds(ids=[build_id])["builds"][0]
            if build["buildComplete"]:
                return build
            time.sleep(0.05)
        raise AssertionError(f"{build} does not end")

    def lines(self, build: Mapping[str, Any]) -> list[str]:
        place = {"logGroupName": build["logs"]["groupName"], "logStreamName": build["logs"]["streamName"]}
        events = self.logs.get_log_events(**place, startFromHead=True)["events"]
        return [event["message"].rstrip("\n") for event in events]


@pytest.fixture
def builds(sandbox: Sandbox) -> Builds:
    return Builds(sandbox)


def status_of(build: Mapping[str, Any]) -> dict[str, str]:
    return {phase["phaseType"]: phase.get("phaseStatus", "") for phase in build["phases"]}


def test_phases_run_in_order_and_see_what_the_build_was_given(builds: Builds) -> None:
    given = [{"name": "WHO", "value": "override"}]
    build = builds.end(
        builds.start(
            {"install": ["export A=1"], "build": ["echo $WHO $A $CODEBUILD_BUILD_SUCCEEDING"]},
            environmentVariablesOverride=given,
        )
    )

    assert build["buildStatus"] == "SUCCEEDED"
    assert "override 1 1" in builds.lines(build)
    assert list(status_of(build)) == [
        *("SUBMITTED", "QUEUED", "PROVISIONING", "DOWNLOAD_SOURCE"),
        *("INSTALL", "PRE_BUILD", "BUILD", "POST_BUILD", "COMPLETED"),
    ]


@pytest.mark.parametrize(
    ("failing", "after"),
    [
        pytest.param("pre_build", [], id="nothing after a failed pre_build"),
        pytest.param("build", ["POST_BUILD"], id="post_build after a failed build"),
    ],
)
def test_what_runs_after_a_failed_phase_is_as_in_codebuild(
    builds: Builds, failing: str, after: list[str]
) -> None:
    build = builds.end(builds.start({failing: ["exit 3", "echo never"], "post_build": ["true"]}))
    phases = list(status_of(build))

    assert build["buildStatus"] == "FAILED"
    assert phases[phases.index(failing.upper()) + 1 : -1] == after
    assert "never" not in builds.lines(build)


def test_the_projects_own_buildspec_is_used_unless_overridden(builds: Builds) -> None:
    build = builds.end(builds.start())

    context = next(p for p in build["phases"] if p["phaseType"] == "BUILD")["contexts"][0]
    assert context == {
        "statusCode": "COMMAND_EXECUTION_ERROR",
        "message": "Error while executing command: exit 3. Reason: exit status 3",
    }


def test_a_source_that_is_not_there_fails_the_download(builds: Builds) -> None:
    location = {"sourceTypeOverride": "S3", "sourceLocationOverride": "no-such-bucket/key.zip"}

    build = builds.end(builds.start({"build": ["true"]}, **location))

    assert status_of(build)["DOWNLOAD_SOURCE"] == "FAILED"


def test_a_token_with_other_parameters_is_refused(builds: Builds) -> None:
    builds.start({"build": ["true"]}, idempotencyToken="token")

    with pytest.raises(ClientError, match="InvalidInputException"):
        builds.start({"build": ["false"]}, idempotencyToken="token")


def test_builds_that_never_were_are_listed_as_not_found(builds: Builds) -> None:
    known = builds.start({"build": ["true"]})

    answer = builds.client.batch_get_builds(ids=[known, "p:none"])

    assert ([build["id"] for build in answer["builds"]], answer["buildsNotFound"]) == ([known], ["p:none"])


def test_a_project_is_changed_listed_and_deleted(builds: Builds) -> None:
    builds.client.update_project(name=builds.project, timeoutInMinutes=7)
    changed = builds.client.batch_get_projects(names=[builds.project, "none"])
    builds.client.delete_project(name=builds.project)

    assert (changed["projects"][0]["timeoutInMinutes"], changed["projectsNotFound"]) == (7, ["none"])
    assert builds.project not in builds.client.list_projects()["projects"]


def test_a_build_fails_in_aws_name_when_a_rehearsal_asks_for_it(sandbox: Sandbox, builds: Builds) -> None:
    parameters = {"projectName": builds.project}
    sandbox.control.fault("fail", service="codebuild", parameters=parameters, message="rehearsed")

    build = builds.end(builds.start({"build": ["sleep 600"]}))

    assert build["buildStatus"] == "FAULT"
    assert "rehearsed" in json.dumps(build["phases"], default=str)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Return a home for a sandbox of the test's own, stopped at its end whatever happened."""
    yield tmp_path / "home"
    stop_sandbox(tmp_path / "home")


def test_builds_and_images_are_there_after_a_restart(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        sandbox = start_sandbox(home)
        for name, value in sandbox.environment.items():
            monkeypatch.setenv(name, value)
        if number == 1:
            (tmp_path / "code").mkdir()
            site = Site(sandbox, tmp_path / "code")
            first = site.build(base_image=DLC)
            stop_sandbox(home)
    site.sandbox = sandbox

    assert site.build(base_image=DLC) == first | {"built": False, "seconds": 0.0}
    assert len(sandbox.client("codebuild").list_builds()["ids"]) == 1


def test_going_down_ends_a_running_build(home: Path) -> None:
    builds = Builds(start_sandbox(home))
    build_id = builds.start({"build": ["echo begun; sleep 600"]})
    while "BUILD" not in status_of(builds.client.batch_get_builds(ids=[build_id])["builds"][0]):
        time.sleep(0.05)

    stop_sandbox(home)  # fails if a process is left

    again = start_sandbox(home).client("codebuild").batch_get_builds(ids=[build_id])["builds"][0]
    assert again["buildStatus"] == "STOPPED"


@pytest.mark.needs("buildah")
@pytest.mark.skipif(not buildah.works(), reason="buildah builds here as root only")
def test_buildah_builds_what_the_dockerfile_says_and_a_job_runs_in_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = start_sandbox(home, "--images=buildah")
    for name, value in sandbox.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "code").mkdir()
    site = Site(sandbox, tmp_path / "code")

    image = site.own("RUN echo by buildah > /opt/proof && python3 --version")
    job = site.run(image, "cat /opt/proof")

    assert "by buildah" in job["printed"]
    assert str(home) not in Path("/proc/mounts").read_text()
