import asyncio
import re
import time

import pytest
from botocore.exceptions import ClientError

from airflow_smd.domain.training import TrainingStatus
from airflow_smd.triggers.poller import Poller
from airflow_smd.triggers.training import TrainingTrigger
from tests.fakes.training import FakeJobLogs, FakeTrainingHook, FakeTrainingJobs

JOB = "smd-train-1"


@pytest.fixture
def jobs() -> FakeTrainingJobs:
    jobs = FakeTrainingJobs()
    jobs.launch({"TrainingJobName": JOB})
    return jobs


@pytest.fixture
def logs() -> FakeJobLogs:
    logs = FakeJobLogs({"algo-1": [], "algo-2": []})
    logs.at = time.time()
    return logs


@pytest.fixture
def waiting(jobs, logs):
    def build(**changes) -> TrainingTrigger:
        trigger = TrainingTrigger(**{"job_name": JOB, "connection": {}, "poll_seconds": 0.01} | changes)
        trigger.poller, trigger.jobs = Poller(FakeTrainingHook(jobs, logs)), jobs
        return trigger

    return build


@pytest.fixture
def trigger(waiting) -> TrainingTrigger:
    return waiting()


def fired(trigger: TrainingTrigger) -> list:
    async def collect():
        return [event.payload async for event in trigger.run()]

    return asyncio.run(collect())


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

    assert (trigger.look() is not None) is over


def test_it_fires_once_with_the_job_and_where_its_log_goes_on(trigger, jobs):
    jobs.end(JOB, TrainingStatus.COMPLETED)

    ((event),) = fired(trigger)

    assert event["job_name"] == JOB
    assert set(event["log"]) == {"since", "ids"}


def test_a_job_deleted_under_us_ends_the_wait(trigger, jobs):
    del jobs.runs[JOB]

    assert fired(trigger) == [{"job_name": JOB, "gone": True}]


def test_after_the_deadline_it_says_so_and_whose_it_was(waiting):
    assert fired(waiting(deadline=0.0)) == [{"timeout": True, "job_name": JOB}]


def test_a_job_that_is_over_counts_even_after_the_deadline(waiting, jobs):
    jobs.end(JOB, TrainingStatus.COMPLETED)

    ((event),) = fired(waiting(deadline=0.0))

    assert "timeout" not in event


def test_no_line_is_shown_twice(trigger, jobs, logs, capsys):
    jobs.end(JOB, TrainingStatus.IN_PROGRESS, secondary_status="Training", instance_count=2)
    trigger.look()
    trigger.show_log()
    logs.lines["algo-1"] += ["[1,mpirank:0,algo-1]<stdout>:loss=1"]
    trigger.show_log()
    trigger.show_log()

    assert re.findall(r"algo-\d \| \S+", capsys.readouterr().out) == ["algo-1 | loss=1"]


def test_a_log_is_read_only_while_the_job_trains(trigger, jobs):
    seen = {}
    for status in ("Starting", "Downloading", "Training", "Uploading"):
        jobs.end(JOB, TrainingStatus.IN_PROGRESS, secondary_status=status)
        trigger.look()
        seen[status] = trigger.reads_log

    assert [status for status, reads in seen.items() if reads] == ["Training"]


def test_a_triggerer_that_takes_over_shows_the_last_minutes_and_says_so(trigger, jobs, logs, capsys):
    logs.at = time.time() - 3600
    logs.lines["algo-1"] = [f"second {second}" for second in range(3600)]
    jobs.end(JOB, TrainingStatus.IN_PROGRESS, secondary_status="Training", started_at=logs.at)
    trigger.look()
    trigger.show_log()

    out = capsys.readouterr().out
    assert "The log goes on from" in out
    assert f"/aws/sagemaker/TrainingJobs/{JOB}" in out
    assert "second 3599" in out
    assert "second 3200" not in out


def test_the_end_of_a_log_is_shown_however_long_no_triggerer_looked(trigger, jobs):
    ended_at = time.time() - 7200
    jobs.end(JOB, TrainingStatus.FAILED, started_at=ended_at - 7200, ended_at=ended_at)

    assert trigger.look()["log"]["since"] == pytest.approx(ended_at - 300, abs=1)


def test_a_role_that_may_not_read_logs_is_told_once_and_waits_on(trigger, jobs, capsys):
    class Secret(FakeJobLogs):
        def streams(self, job_name):
            denied = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
            raise ClientError(denied, "DescribeLogStreams")

    trigger.poller = Poller(FakeTrainingHook(jobs, Secret()))
    jobs.end(JOB, TrainingStatus.IN_PROGRESS, secondary_status="Training")
    trigger.look()

    assert trigger.show_log() is False
    assert trigger.reads_log is False
    assert capsys.readouterr().out.count("cannot be shown") == 1


def test_stopping_it_stops_the_job(trigger, jobs):
    trigger.stop()

    assert jobs.stopped == [JOB]


def test_triggers_of_one_connection_share_a_poller():
    here, too = (TrainingTrigger(job_name=name, connection={"aws_conn_id": "a"}) for name in "xy")
    elsewhere = TrainingTrigger(job_name="z", connection={"aws_conn_id": "a", "region_name": "eu-west-1"})

    assert here.poller is too.poller
    assert here.poller is not elsewhere.poller
