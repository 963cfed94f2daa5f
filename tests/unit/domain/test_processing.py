import pytest

from airflow_smd.domain.identity import TaskIdentity
from airflow_smd.domain.processing import ProcessingRun, ProcessingStatus, failure, next_step, outcome
from airflow_smd.domain.training import Follow, Launch, Outcome, WaitOut
from airflow_smd.errors import PreprocessFailed, PreprocessStopped, PreprocessTransient

ME = TaskIdentity(dag_id="d", run_id="r", task_id="t")


def run(status, attempt=1, output="s3://b/x"):
    return ProcessingRun(job_name=ME.attempt_name(attempt), status=status, output_uri=output)


@pytest.mark.parametrize(
    ("earlier", "step"),
    [
        pytest.param([], Launch(ME.attempt_name(1)), id="nothing yet"),
        pytest.param([run("InProgress")], Follow(ME.attempt_name(1)), id="it runs"),
        pytest.param([run("Completed")], Follow(ME.attempt_name(1)), id="it is done"),
        pytest.param([run("Failed")], Launch(ME.attempt_name(2)), id="it failed"),
        pytest.param([run("Stopped")], Launch(ME.attempt_name(2)), id="it was stopped"),
        pytest.param([run("Stopping")], WaitOut(ME.attempt_name(1)), id="it is being stopped"),
        pytest.param([run("Failed"), run("InProgress", 2)], Follow(ME.attempt_name(2)), id="the second runs"),
        pytest.param(
            [run("InProgress", output="s3://b/old")], WaitOut(ME.attempt_name(1)), id="old data, runs"
        ),
        pytest.param(
            [run("Completed", output="s3://b/old")], Launch(ME.attempt_name(2)), id="old data, done"
        ),
    ],
)
def test_what_a_task_does_next(earlier, step):
    earlier = [
        ProcessingRun(job_name=r.job_name, status=ProcessingStatus(r.status), output_uri=r.output_uri)
        for r in earlier
    ]

    assert next_step(ME, earlier, "s3://b/x/") == step


@pytest.mark.parametrize("status", list(ProcessingStatus))
def test_only_completed_is_success(status):
    assert (outcome(status) is Outcome.SUCCEEDED) == (status is ProcessingStatus.COMPLETED)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        ("Stopped", "", PreprocessStopped),
        ("Failed", "CapacityError: Unable to provision", PreprocessTransient),
        ("Failed", "InternalServerError: x", PreprocessTransient),
        ("Failed", "AlgorithmError: exit code 1", PreprocessFailed),
        ("Failed", "", PreprocessFailed),
    ],
)
def test_failures_are_told_apart(status, reason, kind):
    ended = ProcessingRun(job_name="j", status=ProcessingStatus(status), failure_reason=reason)

    assert type(failure(ended)) is kind


def test_seconds_are_those_of_the_instances():
    assert (
        ProcessingRun(job_name="j", status=ProcessingStatus.COMPLETED, started_at=10.0, ended_at=70.0).seconds
        == 60
    )
    assert ProcessingRun(job_name="j", status=ProcessingStatus.FAILED).seconds is None
