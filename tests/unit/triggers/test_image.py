"""Waiting for an image build shows its log and ends with it."""

from __future__ import annotations

from airflow_smd.domain.image import BuildSettings, ContextFile, ImagePlan, ImageRecipe, build_spec
from airflow_smd.triggers.image import ImageBuildTrigger
from tests.fakes.image import FakeBuildContexts, FakeImageBuilds, FakeImageRepository, FakeWorld

SETTINGS = BuildSettings(role_arn="arn:aws:iam::123456789012:role/CodeBuild")


def waiting(dockerfile: str) -> tuple[ImageBuildTrigger, FakeWorld]:
    world = FakeWorld(projects={"project"})
    files = (ContextFile(path="Dockerfile", content=dockerfile.encode()),)
    plan = ImagePlan(recipe=ImageRecipe(dockerfile="Dockerfile"), files=files)
    target = f"{FakeImageRepository(world, 'digits').ensure({})}:{plan.tag}"
    contexts, builds = FakeBuildContexts(world, "s3://bucket/run"), FakeImageBuilds(world, "project")
    contexts.put(plan.tag, plan.pack())
    build_id = builds.start(
        name="task",
        tag=plan.tag,
        token="a",
        location=contexts.location(plan.tag),
        build_spec=build_spec(plan, target, "us-east-1"),
        settings=SETTINGS,
    )
    trigger = ImageBuildTrigger(build_id=build_id, tag=plan.tag, connection={"aws_conn_id": None})
    trigger.builds = builds  # type: ignore[assignment]
    return trigger, world


def test_it_says_nothing_while_the_build_runs_and_whose_it_was_at_the_end():
    trigger, _ = waiting("FROM a:1")

    looks = [trigger.look(), trigger.look()]

    assert looks == [None, {"build_id": trigger.build_id, "tag": trigger.tag}]


def test_a_build_that_is_gone_ends_the_wait():
    trigger, world = waiting("FROM a:1")
    world.builds.clear()

    assert trigger.look() == {"build_id": trigger.build_id, "tag": trigger.tag, "gone": True}


def test_each_line_of_the_log_is_shown_once(capsys):
    trigger, _ = waiting("FROM a:1\nRUN sleep 600")

    trigger.look()
    trigger.look()

    assert capsys.readouterr().out.count("build | RUN sleep 600") == 1


def test_stopping_ends_the_build():
    trigger, world = waiting("FROM a:1\nRUN sleep 600")

    trigger.stop()

    assert not world.builds[trigger.build_id].running


def test_it_is_rebuilt_from_what_it_serialises():
    trigger, _ = waiting("FROM a:1")
    path, arguments = trigger.serialize()

    assert path == "airflow_smd.triggers.image.ImageBuildTrigger"
    assert ImageBuildTrigger(**arguments).serialize() == trigger.serialize()
