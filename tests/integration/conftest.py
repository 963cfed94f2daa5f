"""Airflow's own processes on a sandbox, started once for all tests that need them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_smd.cli import demo_site
from airflow_smd.cli.local_airflow import LocalAirflow
from tests.conftest import Sandbox

ROOT = Path(__file__).parents[2]
RUN_SECONDS = 400
QUICK = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
    "AIRFLOW__SMD__POLL_SECONDS": "2",
}
"""A worker that was killed is noticed in seconds, not minutes."""


@dataclass(kw_only=True)
class Run:
    """One DAG run, and every state that its tasks were seen in."""

    airflow: LocalAirflow
    dag_id: str
    run_id: str
    seen: dict[str, set[str]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/dags/{self.dag_id}/dagRuns/{self.run_id}"

    def tasks(self) -> dict[str, dict[str, Any]]:
        answer = self.airflow.call("GET", f"{self.path}/taskInstances?limit=100")
        found = {item["task_id"]: item for item in answer["task_instances"]}
        for task_id, item in found.items():
            self.seen.setdefault(task_id, set()).add(item["state"])
        return found

    def until(self, condition: Callable[[dict[str, dict[str, Any]]], bool]) -> dict[str, dict[str, Any]]:
        """Wait until `condition` holds for the tasks."""
        deadline = time.monotonic() + RUN_SECONDS
        while not condition(tasks := self.tasks()):
            assert time.monotonic() < deadline, {name: item["state"] for name, item in tasks.items()}
            time.sleep(0.3)
        return tasks

    def end(self) -> str:
        """Wait until the run is over and return its state."""
        deadline = time.monotonic() + RUN_SECONDS
        while (state := self.airflow.call("GET", self.path)["state"]) not in ("success", "failed"):
            self.tasks()
            assert time.monotonic() < deadline, {name: item["state"] for name, item in self.tasks().items()}
            time.sleep(0.3)
        self.tasks()
        return str(state)

    def result(self, task_id: str) -> Any:
        """Return what a task returned."""
        path = f"{self.path}/taskInstances/{task_id}/xcomEntries/return_value?deserialize=false"
        return self.airflow.call("GET", path)["value"]

    def log(self, task_id: str, try_number: int = 1) -> str:
        """Return a task's log."""
        return str(
            self.airflow.call(
                "GET", f"{self.path}/taskInstances/{task_id}/logs/{try_number}?full_content=true"
            )
        )


@dataclass(frozen=True, kw_only=True)
class Site:
    """A site: Airflow and the AWS account that its connection leads to."""

    airflow: LocalAirflow
    sandbox: Sandbox

    def trigger(self, dag_id: str, **conf: Any) -> Run:
        """Start a run, as the form does."""
        body = {"conf": conf, "logical_date": None}
        answer = self.airflow.call("POST", f"/dags/{dag_id}/dagRuns", body)
        return Run(airflow=self.airflow, dag_id=dag_id, run_id=answer["dag_run_id"])

    def jobs(self, run: Run) -> list[dict[str, Any]]:
        """Return the training jobs that a run started, oldest first."""
        sagemaker = self.sandbox.client("sagemaker")
        found = []
        for page in sagemaker.get_paginator("list_training_jobs").paginate(
            SortBy="CreationTime", SortOrder="Ascending"
        ):
            for job in page["TrainingJobSummaries"]:
                tags = sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
                if {"Key": "airflow:run_id", "Value": run.run_id} in tags:
                    found.append(job)
        return found

    def file_systems(self, run: Run) -> list[dict[str, Any]]:
        """Return the file systems that a run left."""
        found = self.sandbox.client("fsx").describe_file_systems()["FileSystems"]
        return [each for each in found if {"Key": "airflow:run_id", "Value": run.run_id} in each["Tags"]]


@pytest.fixture(scope="session")
def site(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return Airflow with scheduler and triggerer, the DAGs of `dags/` and those of these tests."""
    home = tmp_path_factory.mktemp("airflow")
    dags = home / "dags"
    shutil.copytree(ROOT / "dags", dags)
    shutil.copytree(Path(__file__).parent / "dags", dags, dirs_exist_ok=True)
    demo_site.furnish(sandbox.endpoint_url)
    environment = demo_site.environment(sandbox.endpoint_url)
    airflow = LocalAirflow(home=home / "home", dags=dags, environment=environment | QUICK)
    try:
        airflow.migrate()
        airflow.start()
        yield Site(airflow=airflow, sandbox=sandbox)
    finally:
        airflow.stop()


@pytest.fixture(scope="session")
def retrained(site: Site) -> Run:
    """Return the first run of the retraining DAG: it finds nothing made before."""
    run = site.trigger("smd_retrain")
    assert run.end() == "success", {name: item["state"] for name, item in run.tasks().items()}
    return run
