"""Waiting for jobs and reading their logs, on the sandbox: through boto3, with calls that fail."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from airflow_smd.aws.logs import TRAINING_LOG_GROUP, JobLogs, LogReader
from airflow_smd.aws.training import TrainingJobs
from airflow_smd.domain.logs import first_error
from airflow_smd.domain.training import TrainingStatus
from airflow_smd.triggers.poller import LIST_FROM, Poller
from airflow_smd.triggers.training import TrainingTrigger
from tests.conftest import Sandbox
from tests.fakes.training import FakeJobLogs, FakeTrainingJobs

BUCKET = "waiting-bucket"
COUNT = LIST_FROM + 1
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.3.0-gpu-py311"
SAY = 'for n in 1 2 3; do echo "[1,mpirank:0,x]<stdout>:step $n"; echo "[1,mpirank:1,x]<stdout>:step 7"; done'


class SandboxHook:
    """What TrainingHook gives, with clients that do not retry, as the poller's do not."""

    def __init__(self, sandbox: Sandbox) -> None:
        from botocore.config import Config

        once = Config(retries={"total_max_attempts": 1})
        self.jobs = TrainingJobs(sandbox.client("sagemaker", config=once))
        self.logs = JobLogs(sandbox.client("logs", config=once))


@pytest.fixture
def start(sandbox: Sandbox) -> Any:
    sandbox.client("s3").create_bucket(Bucket=BUCKET)

    def create(*command: str, hosts: int = 1) -> str:
        name = f"wait-{uuid.uuid4().hex[:8]}"
        sandbox.client("sagemaker").create_training_job(
            TrainingJobName=name,
            RoleArn=sandbox.role_arn,
            AlgorithmSpecification={
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": list(command),
            },
            OutputDataConfig={"S3OutputPath": f"s3://{BUCKET}/out"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": hosts, "VolumeSizeInGB": 30},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
        )
        return name

    return create


@pytest.fixture
def faults(sandbox: Sandbox) -> Iterator[Any]:
    sandbox.control.clear_faults()
    yield sandbox.control
    sandbox.control.clear_faults()


async def events(sandbox: Sandbox, names: list[str], at_most_seconds: float = 90) -> list[dict[str, Any]]:
    poller = Poller(SandboxHook(sandbox))
    triggers = [TrainingTrigger(job_name=name, connection={}, poll_seconds=0.3) for name in names]

    async def first(trigger: TrainingTrigger) -> dict[str, Any]:
        trigger.poller = poller
        (event,) = [event.payload async for event in trigger.run()]
        return event

    return await asyncio.wait_for(asyncio.gather(*map(first, triggers)), at_most_seconds)


@pytest.mark.parametrize(
    ("kind", "operation", "count", "options"),
    [
        pytest.param("throttle", "ListTrainingJobs", 2, {}, id="listing is throttled for a while"),
        pytest.param("throttle", "ListTrainingJobs", None, {}, id="listing is throttled for good"),
        pytest.param("throttle", "DescribeTrainingJob", 3, {}, id="describing is throttled for a while"),
        pytest.param("drop", "*TrainingJob*", 6, {}, id="connections drop before AWS has heard"),
        pytest.param(
            "drop", "*TrainingJob*", 6, {"when": "after"}, id="connections drop before AWS has answered"
        ),
        pytest.param("error", "*", 6, {}, id="AWS has internal errors"),
    ],
)
def test_a_wait_outlives_failing_calls_and_ends_with_the_job(
    sandbox, start, faults, kind, operation, count, options
):
    names = [start("sleep", "3") for _ in range(COUNT)]
    faults.fault(kind, operation=operation, count=count, **options)

    fired = asyncio.run(events(sandbox, names))

    assert [event["job_name"] for event in fired] == names
    assert all("gone" not in event and "timeout" not in event for event in fired)
    describe = sandbox.client("sagemaker").describe_training_job
    assert {describe(TrainingJobName=name)["TrainingJobStatus"] for name in names} == {"Completed"}
    assert count is None or not faults.faults(), "the fault did not strike as often as it should"


def test_while_many_jobs_run_they_are_described_once_and_then_listed_together(sandbox, start, faults):
    names = [start("sleep", "6") for _ in range(COUNT)]
    before = max((call["number"] for call in faults.calls()), default=0)

    with pytest.raises(TimeoutError):
        asyncio.run(events(sandbox, names, at_most_seconds=4))

    described = faults.calls("sagemaker", "DescribeTrainingJob", since=before)
    assert sorted(call["parameters"]["TrainingJobName"] for call in described) == sorted(names)
    assert len(faults.calls("sagemaker", "ListTrainingJobs", since=before)) > 1


@pytest.fixture(params=["fake", "sandbox"])
def ended(request) -> tuple[Any, str]:
    """Return training jobs and the name of one that has just ended."""
    if request.param == "fake":
        jobs = FakeTrainingJobs()
        jobs.launch({"TrainingJobName": "job"})
        jobs.end("job", TrainingStatus.COMPLETED)
        jobs.modified["job"] = time.time()
        return jobs, "job"
    sandbox: Sandbox = request.getfixturevalue("sandbox")
    name = request.getfixturevalue("start")("true")
    await_end(sandbox, name)
    return TrainingJobs(sandbox.client("sagemaker")), name


def await_end(sandbox: Sandbox, name: str) -> None:
    describe = sandbox.client("sagemaker").describe_training_job
    deadline = time.monotonic() + 60
    while describe(TrainingJobName=name)["TrainingJobStatus"] == "InProgress" and time.monotonic() < deadline:
        time.sleep(0.1)


def test_what_changed_lately_is_listed_with_its_status(ended):
    jobs, name = ended

    changes = jobs.changed(time.time() - 60)

    (run,) = [run for run in changes.runs if run.job_name == name]
    assert run.status is TrainingStatus.COMPLETED
    assert changes.newest == pytest.approx(time.time(), abs=60)
    assert changes.token is None


def test_after_the_newest_change_there_is_nothing(ended):
    jobs, _ = ended
    later = jobs.changed(time.time() - 60).newest + 1  # boto3 sends whole seconds

    changes = jobs.changed(later)

    assert (list(changes.runs), changes.newest, changes.token) == ([], later, None)


@pytest.fixture(params=["fake", "sandbox"])
def written(request) -> tuple[Any, str]:
    """Return logs in which two hosts have written six lines each, and the job's name."""
    if request.param == "fake":
        logs = FakeJobLogs()
        said = [f"[1,mpirank:{rank},x]<stdout>:step {7 if rank else n}" for n in (1, 2, 3) for rank in (0, 1)]
        logs.lines = {"algo-1": said, "algo-2": said}
        return logs, "job"
    sandbox: Sandbox = request.getfixturevalue("sandbox")
    name = request.getfixturevalue("start")("sh", "-c", SAY, hosts=2)
    await_end(sandbox, name)
    return JobLogs(sandbox.client("logs")), name


def test_all_hosts_are_read_once_and_told_from_each_other(written):
    logs, name = written
    reader = LogReader(lambda: logs, name, {"since": 0.0})

    shown = [text for text in reader.read(hosts=2) if "step" in text]

    steps = [text.partition(" | ")[2] for text in shown if text.startswith("algo-")]
    assert Counter(steps) >= Counter({"step 1": 2, "step 2": 2, "step 3": 2})
    assert "step 7" not in " ".join(shown)
    assert reader.read(hosts=2) == []


def test_lines_are_read_from_a_time_on_and_that_time_counts(written):
    logs, name = written
    streams = logs.streams(name)
    everything, _ = logs.page(streams, 0.0)
    newest = max(line.at for line in everything)

    late, token = logs.page(streams, newest)

    assert late == [line for line in everything if line.at >= newest]
    assert token is None
    assert len({line.id for line in everything}) == len(everything)


def test_another_reader_goes_on_at_the_cursor(written):
    logs, name = written
    first = LogReader(lambda: logs, name, {"since": 0.0})
    first.read(hosts=2)

    assert LogReader(lambda: logs, name, first.cursor).read(hosts=2) == []


def test_a_job_that_has_not_written_has_nothing_to_read(sandbox):
    logs = JobLogs(sandbox.client("logs"))

    assert LogReader(lambda: logs, "never-was", {"since": 0.0}).read(hosts=2) == []


def test_of_a_job_with_more_hosts_than_a_page_of_streams_the_first_error_is_found(sandbox):
    client, name = sandbox.client("logs"), f"wide-{uuid.uuid4().hex[:8]}"
    with suppress(client.exceptions.ResourceAlreadyExistsException):
        client.create_log_group(logGroupName=TRAINING_LOG_GROUP)
    now = int(time.time() * 1000)
    for host in range(1, 121):
        stream = {"logGroupName": TRAINING_LOG_GROUP, "logStreamName": f"{name}/algo-{host}-1"}
        client.create_log_stream(**stream)
        text = "ValueError: bad batch" if host == 117 else "step 1"
        client.put_log_events(**stream, logEvents=[{"timestamp": now, "message": text}])
    logs = JobLogs(client)

    (error,) = first_error(list(logs.tail(name, 1000)))
    shown = LogReader(lambda: logs, name, {"since": 0.0}).read(hosts=120)

    assert (error.host, error.text) == ("algo-117", "ValueError: bad batch")
    assert shown[0] == "algo-1 | step 1"
