"""The retraining DAG under Airflow's own scheduler and triggerer, on the sandbox, with real work."""

from __future__ import annotations

import json
import os
import signal
import sqlite3

import pytest

from tests.integration.conftest import Run, Site


def test_the_run_reaches_its_accuracy_on_one_job(site: Site, retrained: Run):
    training = retrained.result("train")
    training = json.loads(training) if isinstance(training, str) else training

    assert training["metrics"]["accuracy"] >= 0.95
    assert [job["TrainingJobName"] for job in site.jobs(retrained)] == [training["job_name"]]


@pytest.mark.parametrize("task_id", ["preprocess", "create_file_system", "build_image", "train"])
def test_a_waiting_task_gives_its_slot_back(retrained: Run, task_id: str):
    assert "deferred" in retrained.seen[task_id]


def test_the_file_system_is_gone_after_a_success(site: Site, retrained: Run):
    assert retrained.result("create_file_system")
    assert site.file_systems(retrained) == []


def test_the_second_run_reuses_shards_and_image_and_trains_again(site: Site, retrained: Run):
    again = site.trigger("smd_retrain")

    assert again.end() == "success"
    assert again.seen["preprocess"].isdisjoint({"deferred"})
    assert again.seen["build_image"].isdisjoint({"deferred"})
    assert len(site.jobs(again)) == 1


def test_a_training_that_fails_fails_once_and_leaves_no_file_system(site: Site):
    run = site.trigger("smd_retrain", epochs=1)

    assert run.end() == "failed"
    tasks = run.tasks()
    assert tasks["train"]["state"] == "failed"
    assert tasks["train"]["try_number"] == 1
    assert tasks["delete_file_system"]["state"] == "success"
    assert site.file_systems(run) == []
    assert [job["TrainingJobStatus"] for job in site.jobs(run)] == ["Failed"]
    assert "accuracy" in run.log("train")


def test_a_killed_worker_is_followed_by_a_try_that_finds_the_job(site: Site):
    run = site.trigger("train_only", seconds=30)
    run.until(lambda _: any(job["TrainingJobStatus"] == "InProgress" for job in site.jobs(run)))

    os.kill(_pid(site, run, "in_worker"), signal.SIGKILL)

    assert run.end() == "success"
    assert run.tasks()["in_worker"]["try_number"] == 2
    assert len(site.jobs(run)) == 2, "one for each of the two tasks"


def test_clearing_a_training_that_succeeded_trains_again(site: Site):
    run = site.trigger("train_only", seconds=1)
    assert run.end() == "success"
    before = run.result("in_triggerer")

    body = {"dry_run": False, "dag_run_id": run.run_id, "task_ids": ["in_triggerer"], "only_failed": False}
    site.airflow.call("POST", "/dags/train_only/clearTaskInstances", body)
    run.until(lambda tasks: tasks["in_triggerer"]["state"] != "success")

    assert run.end() == "success"
    after = run.result("in_triggerer")
    assert before["generation"] == 1
    assert after["generation"] == 2
    assert before["job_name"] != after["job_name"]
    assert len(site.jobs(run)) == 3, "one for the other task, one for each generation"


def _pid(site: Site, run: Run, task_id: str) -> int:
    with sqlite3.connect(f"file:{site.airflow.database}?mode=ro", uri=True) as database:
        query = "SELECT pid FROM task_instance WHERE run_id = ? AND task_id = ?"
        return int(database.execute(query, (run.run_id, task_id)).fetchone()[0])
