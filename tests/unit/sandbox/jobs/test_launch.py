"""Which first process a host gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_smd.sandbox.jobs import launch
from airflow_smd.sandbox.jobs.hosts import Isolation
from airflow_smd.sandbox.runtime import Image, Runtime, Settings

TOOLKIT = {"sagemaker_training", "sagemaker_pytorch_container", "torch", "mpi4py"}


def python(path: Path, modules: set[str]) -> Path:
    """Return a stand-in for a container Python that says it has these modules."""
    executable = path / "bin" / "python"
    executable.parent.mkdir()
    answer = json.dumps({"modules": sorted(modules), "prefixes": [str(path)]})
    executable.write_text(f"#!/bin/sh\necho '{answer}'\n")
    executable.chmod(0o755)
    return executable


def start(
    path: Path,
    modules: set[str],
    *,
    hyperparameters: dict[str, str] | None = None,
    image: Image | None = None,
    isolation: Isolation = Isolation.NAMESPACE,
    hosts: int = 1,
    **algorithm: Any,
) -> launch.Launch:
    runtime = Runtime(
        settings=Settings(home=path, container_python=python(path, modules)),
        endpoint_url="http://127.0.0.1:1",
    )
    request = {
        "AlgorithmSpecification": {"TrainingImage": "pytorch-training:2", **algorithm},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": hosts},
        "HyperParameters": hyperparameters or {},
    }
    return launch.plan(runtime, request, image, isolation)


def test_entry_point_of_the_request_comes_first(tmp_path: Path) -> None:
    found = start(tmp_path, TOOLKIT, ContainerEntrypoint=["/bin/sh"], ContainerArguments=["-c", "true"])

    assert found.argv == ["/bin/sh", "-c", "true"]


def test_train_that_an_image_brings_along_is_run(tmp_path: Path) -> None:
    (tmp_path / "layer" / "opt" / "program").mkdir(parents=True)
    (tmp_path / "layer" / "opt" / "program" / "train").touch()
    image = Image(digest="d", layers=(tmp_path / "layer",), on_host_root=True, environment={})

    assert start(tmp_path, TOOLKIT, image=image).argv == ["/opt/program/train", "train"]


def test_toolkit_runs_pytorch_images_with_its_pytorch_part(tmp_path: Path) -> None:
    found = start(tmp_path, TOOLKIT)

    assert "sagemaker_training.cli.train" in found.argv[-1]
    assert found.environment == {"SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container.training:main"}


@pytest.mark.parametrize(
    ("modules", "isolation", "hyperparameters", "reason"),
    [
        pytest.param(set(), Isolation.NAMESPACE, {}, "not installed", id="no toolkit"),
        pytest.param(
            TOOLKIT,
            Isolation.PROCESS,
            {"sagemaker_torch_distributed_enabled": "true"},
            "plain processes",
            id="torchrun in plain processes",
        ),
        pytest.param(
            TOOLKIT,
            Isolation.USER_NAMESPACE,
            {"sagemaker_mpi_enabled": "true"},
            "need root",
            id="mpirun without root",
        ),
    ],
)
def test_own_launcher_says_why_it_stands_in(
    tmp_path: Path, modules: set[str], isolation: Isolation, hyperparameters: dict[str, str], reason: str
) -> None:
    found = start(tmp_path, modules, isolation=isolation, hyperparameters=hyperparameters)

    assert found.argv[-1].endswith("launcher.py")
    assert reason in found.note


@pytest.mark.parametrize(
    ("parameters", "launched_only"),
    [
        pytest.param({"pipeline_parallel_degree": 2}, True, id="two pipeline stages"),
        pytest.param({"tensor_parallel_degree": 4, "hybrid_shard_degree": 1}, True, id="tensor parallelism"),
        pytest.param({"pipeline_parallel_degree": 1, "ddp": True}, False, id="degree one"),
        pytest.param({}, False, id="no parameters"),
    ],
)
def test_model_parallelism_is_launched_only(
    tmp_path: Path, parameters: dict[str, Any], launched_only: bool
) -> None:
    found = start(tmp_path, set(), hyperparameters={"mp_parameters": json.dumps(parameters)})

    assert ("SMD_LAUNCH_ONLY" in found.environment) is launched_only


def test_container_python_leads_the_path_and_the_stand_ins_follow(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, container_python=Path("/opt/venv/bin/python"))
    runtime = Runtime(settings=settings, endpoint_url="http://127.0.0.1:1")

    found = launch.base_environment(runtime, None, Isolation.NAMESPACE, tmp_path / "ml", gpus=4)

    assert found["PATH"].split(":")[:2] == ["/opt/venv/bin", "/opt/sandbox/stand_ins/bin"]
    assert found["SMD_SANDBOX_GPUS"] == "4"
    assert found["AWS_ENDPOINT_URL"] == found["S3_ENDPOINT_URL"] == "http://127.0.0.1:1"
