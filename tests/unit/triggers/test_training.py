import re

import pytest

from airflow_smd.domain.training import TrainingStatus
from airflow_smd.triggers.training import TrainingTrigger
from tests.fakes.training import FakeJobLogs, FakeTrainingJobs

JOB = "smd-train-1"


@pytest.fixture
def jobs() -> FakeTrainingJobs:
    jobs = FakeTrainingJobs()
    jobs.launch({"TrainingJobName": JOB})
    return jobs


@pytest.fixture
def trigger(jobs) -> TrainingTrigger:
    trigger = TrainingTrigger(job_name=JOB, connection={})
    trigger.jobs = jobs
    trigger.logs = FakeJobLogs({"algo-1": [], "algo-2": ["hidden"]})
    return trigger


@pytest.mark.parametrize(
    ("status", "over"),
    [
        pytest.param(TrainingStatus.IN_PROGRESS, False, id="running"),
        pytest.param(TrainingStatus.STOPPING, False, id="saving its work"),
        pytest.param(TrainingStatus.COMPLETED, True, id="completed"),
        pytest.param(TrainingStatus.FAILED, True, id="failed"),
        pytest.param(TrainingStatus.STOPPED, True, id="stopped"),
    ],
)
def test_it_fires_only_when_the_job_is_over(trigger, jobs, status, over):
    jobs.end(JOB, status)

    assert trigger.look() == ({"job_name": JOB} if over else None)


def test_a_job_deleted_under_us_ends_the_wait(trigger, jobs):
    del jobs.runs[JOB]

    assert trigger.look() == {"job_name": JOB, "gone": True}


def test_the_log_of_rank_0_is_shown_once(trigger, capsys):
    trigger.look()
    trigger.logs.lines["algo-1"] += [
        "[1,mpirank:0,algo-1]<stdout>:loss=1",
        "[1,mpirank:1,algo-1]<stdout>:loss=2",
    ]
    trigger.look()
    trigger.look()

    assert re.findall(r"\w+-\d \| \S+", capsys.readouterr().out) == ["algo-1 | loss=1"]


def test_stopping_it_stops_the_job(trigger, jobs):
    trigger.stop()

    assert jobs.stopped == [JOB]
