"""MPI, torchrun and SMDDP as real jobs of two hosts, started by AWS's own container toolkit."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_smd.cli import demo_site
from airflow_smd.cli.local_airflow import LocalAirflow
from tests.conftest import Sandbox, start_sandbox, stop_sandbox

ROOT = Path(__file__).parents[2]
CONTAINER_PYTHON = os.environ.get("SMD_CONTAINER_PYTHON", "")
pytestmark = [
    pytest.mark.skipif(
        not CONTAINER_PYTHON, reason="SMD_CONTAINER_PYTHON names no Python with AWS's toolkit (.ci/test)"
    ),
    pytest.mark.needs("mpirun"),
    pytest.mark.needs("sshd"),
]


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sandbox, dict[str, Any]]]:
    """Return a sandbox whose containers hold AWS's toolkit, and the jobs of one DAG run by strategy."""
    home = tmp_path_factory.mktemp("toolkit")
    dags = home / "dags"
    shutil.copytree(ROOT / "dags", dags)
    shutil.copytree(Path(__file__).parent / "dags", dags, dirs_exist_ok=True)
    sandbox = start_sandbox(home / "sandbox", f"--container-python={CONTAINER_PYTHON}")
    try:
        demo_site.furnish(sandbox.endpoint_url)
        airflow = LocalAirflow(
            home=home / "home", dags=dags, environment=demo_site.environment(sandbox.endpoint_url)
        )
        airflow.migrate()
        assert airflow.test("strategies", {}).wait() == 0, airflow.log("test").read_text()[-4000:]
        sagemaker = sandbox.client("sagemaker")
        names = [job["TrainingJobName"] for job in sagemaker.list_training_jobs()["TrainingJobSummaries"]]
        described = [sagemaker.describe_training_job(TrainingJobName=name) for name in names]
        yield sandbox, {job["TrainingJobName"].split("-")[1]: job for job in described}
    finally:
        stop_sandbox(home / "sandbox")


def log_of(sandbox: Sandbox, job_name: str) -> str:
    logs = sandbox.client("logs")
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{job_name}/"
    )
    return "\n".join(event["message"] for page in pages for event in page["events"])


@pytest.mark.parametrize(
    ("strategy", "started_by"),
    [
        pytest.param("mpi", "mpirun --host algo-1,algo-2 -np 2", id="MPI: mpirun over two hosts"),
        pytest.param(
            "torchrun", "torchrun --nnodes 2 --nproc_per_node 1", id="torchrun on each of two hosts"
        ),
        pytest.param("smddp", "-verbose -x NCCL_DEBUG=VERSION", id="SMDDP with the seed's MPI options"),
    ],
)
def test_two_hosts_train_together_as_awss_toolkit_starts_them(toolkit, strategy, started_by):
    sandbox, jobs = toolkit
    job = jobs[strategy]

    assert job["TrainingJobStatus"] == "Completed"
    metrics = {metric["MetricName"]: metric["Value"] for metric in job["FinalMetricDataList"]}
    assert metrics["accuracy"] >= 0.93
    log = log_of(sandbox, job["TrainingJobName"])
    assert started_by in log, log[:4000]
    assert json.loads(job["HyperParameters"].get("epochs", "0")) == 20
