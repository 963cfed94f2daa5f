"""How a container's end is told, and which image a job gets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from airflow_smd.sandbox.jobs.containers import (
    Containers,
    JobFailed,
    failure_reason,
    find_image,
    make_ssh_keys,
)
from airflow_smd.sandbox.jobs.hosts import Isolation
from airflow_smd.sandbox.jobs.launch import Launch
from airflow_smd.sandbox.jobs.machines import Machine
from airflow_smd.sandbox.runtime import Image, Runtime, Settings

OURS = "123456789012.dkr.ecr.us-east-1.amazonaws.com/digits:1"
IMAGE = Image(
    digest="sha256:d", layers=(), on_host_root=True, environment={"A": "image", "PYTHONPATH": "/lib"}
)
MACHINE = Machine(name="algo-1", number=0, group="g", instance_type="ml.m5.large")


class Ecr:
    """ECR with one repository."""

    def own_repository(self, image: str) -> str | None:
        return image.partition("/")[2].partition(":")[0] if image.startswith("123456789012.") else None

    def repository_exists(self, name: str) -> bool:
        return name == "digits"


def runtime(path: Path, **images: Image) -> Runtime:
    return Runtime(
        settings=Settings(home=path),
        endpoint_url="http://127.0.0.1:1",
        image=lambda uri: images.get(uri.rpartition("/")[2].partition(":")[0]),
    )


@pytest.mark.parametrize(
    ("written", "training", "reason"),
    [
        pytest.param("no luck", True, "AlgorithmError: no luck, exit code: 3", id="training with words"),
        pytest.param(None, True, "AlgorithmError: , exit code: 3", id="training without"),
        pytest.param("no luck", False, "AlgorithmError: no luck", id="processing with words"),
        pytest.param(
            None, False, "AlgorithmError: See job logs for more information", id="processing without"
        ),
    ],
)
def test_failure_is_told_as_aws_tells_it(
    tmp_path: Path, written: str | None, training: bool, reason: str
) -> None:
    (tmp_path / "output").mkdir()
    if written is not None:
        (tmp_path / "output" / "failure").write_text(written)

    assert failure_reason(tmp_path, 3, training=training) == reason


def test_exit_code_survives_a_long_story(tmp_path: Path) -> None:
    """AWS keeps 1,024 characters of a reason."""
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "failure").write_text("x" * 5000)

    reason = failure_reason(tmp_path, 255, training=True)

    assert len(reason) <= 1024
    assert reason.endswith(", exit code: 255")


def test_image_of_this_account_is_found_and_anothers_is_this_machine(tmp_path: Path) -> None:
    ecr: Any = Ecr()

    assert find_image(runtime(tmp_path, digits=IMAGE), ecr, OURS, "role") is IMAGE
    assert (
        find_image(runtime(tmp_path), ecr, "763104351884.dkr.ecr.us-east-1.amazonaws.com/p:1", "role") is None
    )


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        pytest.param(OURS, "Cannot find image", id="no such tag"),
        pytest.param(
            OURS.replace("digits", "others"), "Cannot find repository: others", id="no such repository"
        ),
    ],
)
def test_missing_image_of_this_account_fails_the_job(tmp_path: Path, uri: str, message: str) -> None:
    ecr: Any = Ecr()

    with pytest.raises(JobFailed, match=message):
        find_image(runtime(tmp_path), ecr, uri, "role")


def test_variables_of_the_job_win_over_the_images(tmp_path: Path) -> None:
    containers = Containers(runtime(tmp_path), Isolation.PROCESS, tmp_path)
    start = Launch(argv=["run", "/opt/ml/input"], environment={"B": "launch"}, note="")

    plan = containers.plan(MACHINE, start, IMAGE, {"A": "/opt/ml/model"}, [])

    ml = containers.layout("algo-1").ml
    assert (plan.environment["A"], plan.environment["B"]) == (f"{ml}/model", "launch")
    assert plan.environment["PYTHONPATH"].endswith("/stand_ins:/lib")
    assert list(plan.argv) == ["run", f"{ml}/input"]


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")
def test_keys_of_a_job_are_its_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        make_ssh_keys(tmp_path / name)

    keys = [(tmp_path / name / "ssh" / "authorized_keys").read_text() for name in ("a", "b")]
    assert keys[0] != keys[1]
    assert (tmp_path / "a" / "ssh" / "id_ed25519").stat().st_mode & 0o077 == 0
