import asyncio
import time

import pytest

from airflow_smd.domain.processing import ProcessingStatus
from airflow_smd.triggers.processing import ProcessingTrigger
from tests.fakes.processing import FakeProcessingJobs
from tests.fakes.training import FakeJobLogs

REQUEST = {
    "ProcessingJobName": "j",
    "ProcessingResources": {"ClusterConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1}},
    "ProcessingOutputConfig": {"Outputs": [{"S3Output": {"S3Uri": "s3://b/x"}}]},
}


@pytest.fixture
def trigger():
    waiting = ProcessingTrigger(job_name="j", carry={"fingerprint": "f"}, connection={}, poll_seconds=0.01)
    waiting.jobs = FakeProcessingJobs()
    waiting.jobs.launch(REQUEST)
    waiting.logs = FakeJobLogs()
    return waiting


def test_it_waits_while_the_job_runs(trigger):
    assert trigger.look() is None


@pytest.mark.parametrize(
    "status", [ProcessingStatus.COMPLETED, ProcessingStatus.FAILED, ProcessingStatus.STOPPED]
)
def test_it_fires_when_the_job_is_over_and_gives_back_what_was_planned(trigger, status):
    trigger.jobs.end("j", status)

    assert trigger.look() == {"job_name": "j", "fingerprint": "f"}


def test_it_waits_while_the_job_is_being_stopped(trigger):
    trigger.jobs.stop("j")

    assert trigger.look() is None


def test_it_fires_when_the_job_is_gone(trigger):
    del trigger.jobs.runs["j"]

    assert trigger.look() == {"job_name": "j", "fingerprint": "f"}


def test_killing_it_stops_the_job(trigger):
    asyncio.run(trigger.on_kill())

    assert trigger.jobs.stopped == ["j"]


def test_it_survives_a_restart_of_the_triggerer(trigger):
    path, arguments = trigger.serialize()

    again = ProcessingTrigger(**arguments)

    assert path == "airflow_smd.triggers.processing.ProcessingTrigger"
    assert again.serialize() == trigger.serialize()


def test_progress_of_the_first_host_goes_to_the_task_log_once(trigger, capsys):
    trigger.logs = FakeJobLogs({"algo-1": ["1/4 files"], "algo-2": ["2/4 files"]})
    trigger.logs.at = time.time()
    trigger.look()
    trigger.logs.lines["algo-1"].append("4/4 files")
    trigger.look()

    said = capsys.readouterr().out
    assert [said.count(line) for line in ("algo-1 | 1/4", "algo-1 | 4/4", "algo-2 |")] == [1, 1, 0]


class Unreadable:
    def streams(self, job_name):
        raise PermissionError("logs:DescribeLogStreams")


def test_a_log_that_may_not_be_read_does_not_hide_the_end(trigger):
    trigger.logs = Unreadable()
    trigger.look()
    trigger.jobs.end("j", ProcessingStatus.COMPLETED)

    assert trigger.look() == {"job_name": "j", "fingerprint": "f"}
