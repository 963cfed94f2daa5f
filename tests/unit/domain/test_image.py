"""A recipe becomes a Dockerfile, a tag and a list of everything that is wrong."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_smd.domain.dockerfile import parse_dockerfile
from airflow_smd.domain.image import (
    BuildSettings,
    BuildStatus,
    ContextFile,
    Follow,
    ImageBuild,
    ImagePlan,
    ImageRecipe,
    Start,
    build_spec,
    next_build,
)
from airflow_smd.domain.image_problems import target_problems
from airflow_smd.errors import Severity

DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2.0-gpu-py310"
CODE = (
    ContextFile(path="train.py", content=b"print(1)\n"),
    ContextFile(path="requirements.txt", content=b"toolz\n"),
)
RECIPE = ImageRecipe(
    base_image=DLC,
    apt=("git",),
    pip=("toolz==0.12.1",),
    requirements="requirements.txt",
    entry_point="train.py",
)
PLAN = ImagePlan(recipe=RECIPE, files=CODE)


def own(text: str, *files: ContextFile) -> ImagePlan:
    dockerfile = ContextFile(path="Dockerfile", content=text.encode())
    return ImagePlan(recipe=ImageRecipe(dockerfile="Dockerfile"), files=(dockerfile, *files))


def rules(plan: ImagePlan, severity: Severity = Severity.ERROR) -> list[str]:
    return [problem.rule for problem in plan.problems() if problem.severity is severity]


def test_a_prebuilt_container_is_extended_as_aws_prescribes():
    lines = PLAN.dockerfile.splitlines()

    assert lines[0] == f"FROM {DLC}"
    assert 'ENV PATH="/opt/ml/code:${PATH}"' in lines
    assert "ENV SAGEMAKER_SUBMIT_DIRECTORY=/opt/ml/code" in lines
    assert "ENV SAGEMAKER_PROGRAM=train.py" in lines


def test_what_changes_most_often_comes_last():
    steps = [step.rest for step in parse_dockerfile(PLAN.dockerfile) if step.keyword in ("RUN", "COPY")]

    wanted = ["apt-get", "requirements.txt", "-r /tmp/requirements.txt", "toolz==0.12.1", "code /opt/ml/code"]
    assert [word in step for word, step in zip(wanted, steps, strict=True)] == [True] * 5


def test_a_package_cannot_add_a_command():
    plan = replace(PLAN, recipe=replace(RECIPE, pip=("toolz; rm -rf /",)))

    assert "install --no-cache-dir 'toolz; rm -rf /'" in plan.dockerfile


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(PLAN, recipe=replace(RECIPE, base_image=f"{DLC}-other")), id="another base"),
        pytest.param(replace(PLAN, recipe=replace(RECIPE, pip=("toolz==1.0.0",))), id="another package"),
        pytest.param(replace(PLAN, recipe=replace(RECIPE, build_args={"A": "1"})), id="a build argument"),
        pytest.param(replace(PLAN, files=CODE[:1]), id="a file less"),
        pytest.param(replace(PLAN, files=(replace(CODE[0], executable=True), CODE[1])), id="a file's mode"),
        pytest.param(replace(PLAN, files=(replace(CODE[0], content=b""), CODE[1])), id="a file's content"),
        pytest.param(replace(PLAN, files=(replace(CODE[0], path="t.py"), CODE[1])), id="a file's name"),
    ],
)
def test_everything_that_decides_the_image_decides_the_tag(other):
    assert other.tag != PLAN.tag


def test_the_order_in_which_files_are_found_decides_nothing():
    other = replace(PLAN, files=CODE[::-1])

    assert (other.tag, other.pack()) == (PLAN.tag, PLAN.pack())


@given(st.dictionaries(st.from_regex(r"[a-z]{1,4}(/[a-z]{1,4})?", fullmatch=True), st.binary(max_size=20)))
def test_equal_tags_mean_equal_contexts(contents):
    files = tuple(ContextFile(path=path, content=content) for path, content in contents.items())
    plan = replace(PLAN, files=files)
    fresh = replace(PLAN, files=files[::-1])

    assert (plan.tag == PLAN.tag) == (plan.pack() == PLAN.pack())
    assert plan.pack() == fresh.pack()


def test_the_context_keeps_modes_and_puts_code_where_the_dockerfile_looks():
    plan = replace(PLAN, files=(replace(CODE[0], executable=True),))

    with zipfile.ZipFile(io.BytesIO(plan.pack())) as archive:
        assert archive.namelist() == ["Dockerfile.airflow-smd", "code/train.py"]
        assert archive.getinfo("code/train.py").external_attr >> 16 & 0o777 == 0o755


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        pytest.param({"base_image": ""}, ["no-base-image"], id="neither base nor Dockerfile"),
        pytest.param({"base_image": "pytorch"}, ["unpinned-base"], id="a base without a tag"),
        pytest.param({"base_image": "Not A Name:1"}, ["image-reference"], id="a base that is no reference"),
        pytest.param({"apt": ("git && rm",)}, ["apt-package"], id="a command among Debian packages"),
        pytest.param({"pip": ("--index-url x",)}, ["pip-requirement"], id="an option among requirements"),
        pytest.param({"requirements": "no.txt"}, ["missing-in-context"], id="a requirements file not there"),
        pytest.param({"entry_point": "no.py"}, ["missing-in-context"], id="an entry point not there"),
        pytest.param({"build_args": {"HF_TOKEN": "x"}}, ["secret-in-image"], id="a secret as argument"),
        pytest.param({"build_args": {"a-b": "x"}}, ["variable-name"], id="an argument with a bad name"),
    ],
)
def test_a_bad_recipe_is_refused(recipe, expected):
    assert rules(replace(PLAN, recipe=replace(RECIPE, **recipe))) == expected


def test_all_problems_are_found_at_once():
    recipe = replace(RECIPE, base_image="pytorch", apt=("A b",), requirements="no.txt")

    found = [problem.field for problem in replace(PLAN, recipe=recipe).problems()]

    assert found == ["recipe.base_image", "recipe.apt[0]", "recipe.requirements"]


def test_a_good_recipe_has_no_problems():
    assert PLAN.problems() == []


@pytest.mark.parametrize(
    ("recipe", "warning"),
    [
        pytest.param({"pip": ("toolz",)}, "unpinned-package", id="a package without a version"),
        pytest.param({"base_image": "a/b:latest"}, "moving-base", id="a base that moves"),
    ],
)
def test_what_moves_is_a_warning(recipe, warning):
    plan = replace(PLAN, recipe=replace(RECIPE, **recipe))

    assert rules(plan) == []
    assert rules(plan, Severity.WARNING) == [warning]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("FROM a:1\nCOPY train.py /x", ["copy-missing"], id="a file that the context lacks"),
        pytest.param("FROM a:1\nCOPY ../x /x", ["copy-outside"], id="a file out of the context"),
        pytest.param("FROM a", ["unpinned-base"], id="a base without a tag"),
        pytest.param("RUN true", ["dockerfile-no-from"], id="no FROM"),
        pytest.param("FRM a:1", ["dockerfile-syntax"], id="a typing error"),
        pytest.param("FROM a:1\nENV DB_PASSWORD=x", ["secret-in-image"], id="a secret in ENV"),
        pytest.param("ARG V=1\nFROM a:$V AS x\nFROM x\nCOPY --from=x /a /b", [], id="stages and arguments"),
    ],
)
def test_a_dockerfile_of_ones_own_is_checked(text, expected):
    assert rules(own(text)) == expected


def test_an_own_dockerfile_stands_alone():
    plan = own("FROM a:1")

    assert rules(replace(plan, recipe=replace(plan.recipe, pip=("toolz==1.0",)))) == [
        "dockerfile-and-additions"
    ]


def test_a_dockerfile_that_copies_what_is_there_is_fine():
    code = ContextFile(path="src/train.py", content=b"")

    assert rules(own("FROM a:1\nCOPY src/*.py Dockerfile /opt/ml/code/\nCOPY . /all", code)) == []


def test_plain_arguments_are_typed_and_unknown_ones_named():
    recipe, problems = ImageRecipe.parse({"base_image": DLC, "pip": "a==1\nb==2", "aptt": ["git"]})

    assert recipe.pip == ("a==1", "b==2")
    assert [(problem.field, problem.remedy) for problem in problems] == [("recipe.aptt", "Did you mean apt?")]


def test_minutes_may_come_from_a_template_as_text():
    settings, problems = BuildSettings.parse({"timeout_minutes": "90", "queued_timeout_minutes": "soon"})

    assert settings.timeout_minutes == 90
    assert [problem.field for problem in problems] == ["build.queued_timeout_minutes"]


def test_a_bad_target_is_refused_with_all_that_is_wrong():
    settings = BuildSettings(role_arn="role", timeout_minutes=1)

    found = [problem.field for problem in target_problems("Digits!", "bucket/prefix", settings)]

    assert found == ["repository", "work_uri", "codebuild_role_arn", "build.timeout_minutes"]


def test_the_buildspec_logs_in_wherever_an_image_comes_from_or_goes_to():
    target = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/digits:tag"
    phases = json.loads(build_spec(PLAN, target, "eu-west-1"))["phases"]

    assert [(command.split()[4], command.split()[-1]) for command in phases["pre_build"]["commands"]] == [
        ("eu-west-1", target.partition("/")[0]),
        ("us-east-1", DLC.partition("/")[0]),
    ]
    assert phases["build"]["commands"][-1] == f"docker push {target}"


def build(number: int, status: BuildStatus, tag: str = "tag", name: str = "task") -> ImageBuild:
    return ImageBuild(build_id=f"p:{number}", status=status, phase="BUILD", name=name, tag=tag)


RUNNING, BROKEN = BuildStatus.IN_PROGRESS, BuildStatus.FAILED


@pytest.mark.parametrize(
    ("earlier", "step"),
    [
        pytest.param([], Start(token="task-tag-a1"), id="nothing yet: start"),
        pytest.param([build(1, RUNNING)], Follow(build_id="p:1"), id="ours runs: follow"),
        pytest.param([build(1, BROKEN)], Start(token="task-tag-a2"), id="ours failed: the next attempt"),
        pytest.param(
            [build(1, RUNNING, tag="old")],
            Start(token="task-tag-a1", stop=("p:1",)),
            id="ours builds older code: stop it, start",
        ),
        pytest.param(
            [build(1, RUNNING, name="other")], Start(token="task-tag-a1"), id="another's is left alone"
        ),
    ],
)
def test_a_retry_follows_what_an_earlier_try_started(earlier, step):
    assert next_build("task", "tag", earlier) == step
