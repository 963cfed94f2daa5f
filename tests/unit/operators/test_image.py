"""One image per content: found, followed or built, and never left building."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_smd.domain.image import BuildStatus
from airflow_smd.errors import (
    ImageBuildFailed,
    ImageBuildFault,
    ImageBuildStopped,
    ImageBuildTimedOut,
    InvalidInput,
    TaskTimedOut,
    UnexpectedAnswer,
)
from airflow_smd.operators.image import TrainingImageBuildOperator
from tests.fakes.image import FakeBuildContexts, FakeImageBuilds, FakeImageRepository, FakeWorld

DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2.0-gpu-py310"
ROLE = "arn:aws:iam::123456789012:role/CodeBuild"
RETRIES = 2


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print(1)\n")
    return tmp_path


def context(*, clears: int = 0, run_id: str = "run-1") -> Any:
    ti = SimpleNamespace(
        dag_id="retrain",
        run_id=run_id,
        task_id="image",
        map_index=-1,
        max_tries=RETRIES + clears,
        try_number=1,
    )
    return {"ti": ti}


def task(world: FakeWorld, code: Path, **arguments: Any) -> TrainingImageBuildOperator:
    given = {
        "repository": "digits",
        "work_uri": "s3://bucket/run",
        "base_image": DLC,
        "source_dir": str(code),
        "codebuild_role_arn": ROLE,
        "deferrable": True,
        "retries": RETRIES,
        **arguments,
    }
    operator = TrainingImageBuildOperator(task_id="image", **given)
    operator.images = FakeImageRepository(world, operator.repository)  # type: ignore[assignment]
    operator.contexts = FakeBuildContexts(world, operator.work_uri)  # type: ignore[assignment]
    operator.builds = FakeImageBuilds(world, "project")  # type: ignore[assignment]
    return operator


def deferred(operator: TrainingImageBuildOperator, **who: Any) -> Any:
    """Run until the task defers, and return its trigger."""
    with pytest.raises(TaskDeferred) as deferral:
        operator.execute(context(**who))
    assert deferral.value.method_name == "finish"
    return deferral.value.trigger


def event(trigger: Any) -> dict[str, Any]:
    return {"build_id": trigger.build_id, "tag": trigger.tag}


def until_over(operator: TrainingImageBuildOperator, trigger: Any) -> None:
    while (build := operator.builds.look(trigger.build_id)) and build.running:
        pass


def test_an_image_is_built_and_returned_pinned(world: FakeWorld, code: Path) -> None:
    operator = task(world, code)
    trigger = deferred(operator)
    until_over(operator, trigger)

    result = operator.finish(context(), event(trigger))

    digest = world.repositories["digits"][trigger.tag]
    repository = "123456789012.dkr.ecr.us-east-1.amazonaws.com/digits"
    assert result == {
        "image_uri": f"{repository}@{digest}",
        "tag_uri": f"{repository}:{trigger.tag}",
        "digest": digest,
        "built": True,
        "seconds": 2.0,
    }


def test_the_same_content_is_found_with_one_call_and_nothing_is_uploaded(
    world: FakeWorld, code: Path
) -> None:
    first = task(world, code)
    until_over(first, deferred(first))
    world.calls.clear()

    result = task(world, code).execute(context(run_id="run-2"))

    assert (result["built"], world.calls) == (False, ["find"])


def test_changed_code_is_built_anew(world: FakeWorld, code: Path) -> None:
    first = task(world, code)
    until_over(first, deferred(first))
    (code / "train.py").write_text("print(2)\n")

    deferred(task(world, code))

    assert len(world.builds) == 2


def test_a_retry_follows_the_running_build(world: FakeWorld, code: Path) -> None:
    first = deferred(task(world, code))

    assert deferred(task(world, code)).build_id == first.build_id
    assert len(world.builds) == 1


def test_a_retry_with_changed_code_stops_the_build_of_the_old(world: FakeWorld, code: Path) -> None:
    old = deferred(task(world, code)).build_id
    (code / "train.py").write_text("print(2)\n")

    new = deferred(task(world, code)).build_id

    assert world.builds[old].status is BuildStatus.STOPPED
    assert world.builds[new].running


def test_a_build_says_whose_run_pays_for_it(world: FakeWorld, code: Path) -> None:
    operator = task(world, code)

    trigger = deferred(operator)

    assert world.payers[trigger.build_id] == operator.identity(context()).tags


def test_another_run_does_not_touch_our_build(world: FakeWorld, code: Path) -> None:
    ours = deferred(task(world, code)).build_id

    theirs = deferred(task(world, code), run_id="run-2").build_id

    assert ours != theirs
    assert world.builds[ours].running


@pytest.mark.parametrize(
    ("status", "error"),
    [
        pytest.param(BuildStatus.FAILED, ImageBuildFailed, id="a step failed"),
        pytest.param(BuildStatus.FAULT, ImageBuildFault, id="CodeBuild failed"),
        pytest.param(BuildStatus.TIMED_OUT, ImageBuildTimedOut, id="it took too long"),
        pytest.param(BuildStatus.STOPPED, ImageBuildStopped, id="somebody stopped it"),
        pytest.param(BuildStatus.SUCCEEDED, UnexpectedAnswer, id="it succeeded but pushed nothing"),
    ],
)
def test_each_bad_end_has_an_error_of_its_own(
    world: FakeWorld, code: Path, status: BuildStatus, error: type[Exception]
) -> None:
    operator = task(world, code)
    trigger = deferred(operator)
    operator.builds.end(trigger.build_id, status)  # type: ignore[attr-defined]

    with pytest.raises(error) as raised:
        operator.finish(context(), event(trigger))

    assert raised.type is error or issubclass(raised.type, error)
    assert trigger.build_id in str(raised.value)


def test_a_failure_shows_the_end_of_the_log(world: FakeWorld, code: Path) -> None:
    (code / "Dockerfile").write_text("FROM a:1\nRUN exit 7\n")
    operator = task(world, code, base_image="", recipe={"dockerfile": "Dockerfile"})
    trigger = deferred(operator)
    until_over(operator, trigger)

    with pytest.raises(ImageBuildFailed, match="ended in BUILD") as raised:
        operator.finish(context(), event(trigger))

    assert raised.value.log_lines == ("FROM a:1", "RUN exit 7")


def test_a_build_that_another_task_overtook_is_no_failure(world: FakeWorld, code: Path) -> None:
    operator = task(world, code)
    trigger = deferred(operator)
    operator.builds.end(trigger.build_id, BuildStatus.FAILED)  # type: ignore[attr-defined]
    world.repositories["digits"][trigger.tag] = "sha256:other"

    assert operator.finish(context(), event(trigger))["built"] is False


def test_a_timeout_stops_the_build(world: FakeWorld, code: Path) -> None:
    operator = task(world, code, execution_timeout=timedelta(minutes=5))
    trigger = deferred(operator)

    with pytest.raises(TaskTimedOut, match=trigger.build_id):
        operator.finish(context(), event(trigger) | {"timeout": True})

    assert trigger.deadline is not None
    assert world.builds[trigger.build_id].status is BuildStatus.STOPPED


def test_killing_the_task_stops_the_build(world: FakeWorld, code: Path) -> None:
    operator = task(world, code)
    trigger = deferred(operator)

    operator.on_kill()

    assert world.builds[trigger.build_id].status is BuildStatus.STOPPED


def test_killing_a_task_that_built_nothing_does_nothing(world: FakeWorld, code: Path) -> None:
    task(world, code).on_kill()

    assert world.calls == []


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        pytest.param({"repository": "Digits!"}, "repository", id="a repository name"),
        pytest.param({"codebuild_role_arn": "role"}, "codebuild_role_arn", id="a role that is no ARN"),
        pytest.param({"base_image": "pytorch"}, "recipe.base_image", id="a base without a tag"),
        pytest.param({"recipe": {"pips": []}}, "recipe.pips", id="a field that does not exist"),
        pytest.param({"recipe": ["git"]}, "recipe", id="a recipe that is no mapping"),
        pytest.param({"work_uri": "bucket"}, "work_uri", id="a work folder that is no S3 URI"),
    ],
)
def test_what_no_template_can_change_is_refused_when_the_dag_is_parsed(
    world: FakeWorld, code: Path, arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        task(world, code, **arguments)

    assert [problem.field for problem in refused.value.problems] == [field]


def test_templates_are_left_for_the_run(world: FakeWorld, code: Path) -> None:
    operator = task(world, code, work_uri="{{ params.work_uri }}", codebuild_role_arn="{{ var.value.role }}")

    with pytest.raises(InvalidInput) as refused:
        operator.execute(context())

    assert [problem.field for problem in refused.value.problems] == ["work_uri", "codebuild_role_arn"]
    assert world.calls == []


def test_a_whole_recipe_may_come_from_a_template(world: FakeWorld, code: Path) -> None:
    operator = task(world, code, base_image="", recipe="{{ params.recipe }}")
    operator.recipe = {"base_image": DLC}  # as Airflow renders it

    assert deferred(operator).tag


def test_a_missing_requirements_file_is_refused_before_anything_is_made(world: FakeWorld, code: Path) -> None:
    with pytest.raises(InvalidInput, match=r"recipe\.requirements"):
        task(world, code, recipe={"requirements": "requirements.txt"}).execute(context())

    assert world.calls == []
