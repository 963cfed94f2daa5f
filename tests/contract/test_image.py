"""ECR, S3 and CodeBuild as image builds know them: the fake and the sandbox behave alike."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import botocore.session
import pytest

from airflow_smd.aws.image import BuildContexts, ImageBuilds, ImageRepository
from airflow_smd.domain.image import (
    BuildSettings,
    BuildStatus,
    ContextFile,
    ImageBuild,
    ImagePlan,
    ImageRecipe,
    build_spec,
)
from airflow_smd.errors import InvalidInput
from tests.conftest import Sandbox
from tests.fakes.image import FakeBuildContexts, FakeImageBuilds, FakeImageRepository, FakeWorld

SETTINGS = BuildSettings(role_arn="arn:aws:iam::123456789012:role/CodeBuild")
LONGEST_BUILD_SECONDS = 60


@dataclass(kw_only=True)
class Account:
    """One account, real or not, with a repository and a bucket of its own."""

    images: Any
    contexts: Any
    builds: Any
    contexts_in: Callable[[str], Any]
    builds_of: Callable[[str], Any]
    pause_seconds: float

    def start(self, plan: ImagePlan, *, name: str = "task", token: str = "") -> str:
        target = f"{self.images.ensure({'airflow-smd:name': 'task'})}:{plan.tag}"
        self.contexts.put(plan.tag, plan.pack())
        self.builds.ensure_project(SETTINGS, {"airflow-smd:name": "task"})
        build_id: str = self.builds.start(
            name=name,
            tag=plan.tag,
            token=token or str(uuid.uuid4()),
            location=self.contexts.location(plan.tag),
            build_spec=build_spec(plan, target, "us-east-1"),
            settings=SETTINGS,
        )
        return build_id

    def wait(
        self, build_id: str, until: Callable[[ImageBuild], bool] = lambda b: not b.running
    ) -> ImageBuild:
        give_up = time.monotonic() + LONGEST_BUILD_SECONDS
        while time.monotonic() < give_up:
            build: ImageBuild = self.builds.look(build_id)
            if until(build):
                return build
            time.sleep(self.pause_seconds)
        raise AssertionError(f"{build} does not get on: {self.builds.log_lines(build)[0]}")


def fake_account() -> Account:
    world = FakeWorld()
    return Account(
        images=FakeImageRepository(world, "digits"),
        contexts=FakeBuildContexts(world, "s3://bucket/run"),
        builds=FakeImageBuilds(world, SETTINGS.project_name),
        contexts_in=lambda bucket: FakeBuildContexts(world, f"s3://{bucket}/run"),
        builds_of=lambda project: FakeImageBuilds(world, project),
        pause_seconds=0.0,
    )


def sandbox_account(sandbox: Sandbox) -> Account:
    s3, logs, codebuild = (sandbox.client(name) for name in ("s3", "logs", "codebuild"))
    unique = uuid.uuid4().hex[:12]
    s3.create_bucket(Bucket=f"work-{unique}")
    return Account(
        images=ImageRepository(sandbox.client("ecr"), f"digits-{unique}"),
        contexts=BuildContexts(s3, f"s3://work-{unique}/run"),
        builds=ImageBuilds(codebuild, logs, SETTINGS.project_name),
        contexts_in=lambda bucket: BuildContexts(s3, f"s3://{bucket}/run"),
        builds_of=lambda project: ImageBuilds(codebuild, logs, project),
        pause_seconds=0.1,
    )


@pytest.fixture(params=["fake", "sandbox"])
def account(request: pytest.FixtureRequest) -> Account:
    if request.param == "fake":
        return fake_account()
    return sandbox_account(request.getfixturevalue("sandbox"))


def plan(*steps: str) -> ImagePlan:
    dockerfile = "\n".join(["FROM sandbox/host:1", *steps, f"LABEL once={uuid.uuid4().hex}"])
    files = (ContextFile(path="Dockerfile", content=dockerfile.encode()),)
    return ImagePlan(recipe=ImageRecipe(dockerfile="Dockerfile"), files=files)


def test_an_image_is_there_after_its_build_and_not_before(account: Account) -> None:
    wanted = plan()
    assert account.images.find(wanted.tag) is None

    build = account.wait(account.start(wanted))

    assert build.status is BuildStatus.SUCCEEDED
    assert account.images.find(wanted.tag).pinned_uri.partition("@sha256:")[2]


def test_a_repository_is_made_once(account: Account) -> None:
    assert account.images.ensure({}) == account.images.ensure({})


def test_a_context_is_there_once_it_is_uploaded(account: Account) -> None:
    wanted = plan()
    assert not account.contexts.has(wanted.tag)

    account.contexts.put(wanted.tag, wanted.pack())

    assert account.contexts.has(wanted.tag)


def test_a_missing_bucket_is_refused_by_name(account: Account) -> None:
    with pytest.raises(InvalidInput) as refused:
        account.contexts_in("there-is-no-such-bucket").put("tag", b"")

    assert [problem.field for problem in refused.value.problems] == ["work_uri"]


def test_the_same_token_gives_the_same_build(account: Account) -> None:
    wanted, token = plan(), str(uuid.uuid4())

    assert account.start(wanted, token=token) == account.start(wanted, token=token)


def test_a_build_is_found_by_who_started_it(account: Account) -> None:
    wanted, name = plan(), str(uuid.uuid4())
    build_id = account.start(wanted, name=name)
    account.start(plan(), name=f"{name}-other")

    assert [(build.build_id, build.tag) for build in account.builds.named(name)] == [(build_id, wanted.tag)]


def test_a_project_without_builds_has_none_of_ours(account: Account) -> None:
    assert account.builds_of("no-such-project").named("task") == []


def test_a_failed_step_says_which_and_how(account: Account) -> None:
    wanted = plan("RUN echo the compiler is missing && exit 7")

    build = account.wait(account.start(wanted))

    assert (build.status, build.phase) == (BuildStatus.FAILED, "BUILD")
    assert "exit status 1" in build.reason
    assert any("the compiler is missing" in line for line in account.builds.log_tail(build, 50))
    assert account.images.find(wanted.tag) is None


def test_a_stopped_build_is_stopped_and_stays_so(account: Account) -> None:
    build_id = account.start(plan("RUN sleep 600"))
    account.wait(build_id, until=lambda build: build.phase == "BUILD")

    account.builds.stop(build_id)
    build = account.wait(build_id)
    account.builds.stop(build_id)

    assert build.status is BuildStatus.STOPPED
    assert account.builds.look(build_id).status is BuildStatus.STOPPED


def test_a_log_is_read_on_from_where_the_last_look_ended(account: Account) -> None:
    build = account.wait(account.start(plan()))

    lines, token = account.builds.log_lines(build)
    more, _ = account.builds.log_lines(build, token)

    assert lines
    assert more == []


def test_a_build_that_never_was_is_none(account: Account) -> None:
    account.wait(account.start(plan()))

    assert account.builds.look(f"{SETTINGS.project_name}:00000000-0000-0000-0000-000000000000") is None


def test_a_project_of_ones_own_that_is_missing_is_refused(account: Account) -> None:
    with pytest.raises(InvalidInput) as refused:
        account.builds_of("no-such-project").start(
            name="task",
            tag="tag",
            token="token",
            location="work/key",
            build_spec="{}",
            settings=BuildSettings(project="no-such-project"),
        )

    assert [problem.field for problem in refused.value.problems] == ["build.project"]


def test_we_know_every_status_that_aws_knows() -> None:
    model = botocore.session.get_session().get_service_model("codebuild")

    assert set(BuildStatus) == set(model.shape_for("StatusType").enum)
