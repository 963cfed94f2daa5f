from itertools import product

import pytest

from airflow_smd.domain.identity import TaskIdentity, generation
from airflow_smd.domain.training import (
    Follow,
    Launch,
    Outcome,
    TrainingRun,
    TrainingStatus,
    WaitOut,
    failure,
    next_step,
    outcome,
)
from airflow_smd.errors import (
    AlgorithmFailed,
    CapacityUnavailable,
    DataNotReadable,
    ImageNotUsable,
    InternalFailure,
    ResourceLimitReached,
    RuntimeExceeded,
    SpotInterrupted,
    TrainingFailed,
    TrainingStopped,
)

ME = TaskIdentity(dag_id="smd_retrain", run_id="scheduled__2026-11-30", task_id="train")


def a_run(status: TrainingStatus, secondary: str = "", reason: str = "", attempt: int = 1) -> TrainingRun:
    return TrainingRun(
        job_name=ME.attempt_name(attempt),
        status=status,
        secondary_status=secondary or str(status),
        failure_reason=reason,
    )


@pytest.mark.parametrize(
    ("statuses", "step"),
    [
        pytest.param([], Launch(ME.attempt_name(1)), id="nothing yet: launch the first"),
        pytest.param(["InProgress"], Follow(ME.attempt_name(1)), id="running: follow it"),
        pytest.param(["Completed"], Follow(ME.attempt_name(1)), id="completed: take its result"),
        pytest.param(["Failed"], Launch(ME.attempt_name(2)), id="failed: launch the next"),
        pytest.param(["Stopped"], Launch(ME.attempt_name(2)), id="stopped: launch the next"),
        pytest.param(["Stopping"], WaitOut(ME.attempt_name(1)), id="being stopped: wait until it is gone"),
        pytest.param(
            ["Failed", "InProgress"], Follow(ME.attempt_name(2)), id="second attempt runs: follow it"
        ),
        pytest.param(["Failed", "Failed"], Launch(ME.attempt_name(3)), id="two failed: launch the third"),
    ],
)
def test_next_step_never_pays_twice(statuses, step):
    earlier = [a_run(TrainingStatus(status), attempt=number) for number, status in enumerate(statuses, 1)]

    assert next_step(ME, earlier) == step


def test_only_completed_is_success():
    assert [status for status in TrainingStatus if outcome(status) is Outcome.SUCCEEDED] == ["Completed"]


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        pytest.param(
            a_run(
                TrainingStatus.FAILED,
                reason="AlgorithmError: ExecuteUserScriptError: ValueError, exit code: 1",
            ),
            AlgorithmFailed,
            id="user code",
        ),
        pytest.param(
            a_run(TrainingStatus.FAILED, reason="AlgorithmError: could not download s3 image, exit code: 1"),
            AlgorithmFailed,
            id="user code that mentions data",
        ),
        pytest.param(
            a_run(
                TrainingStatus.FAILED,
                reason="CapacityError: Unable to provision requested ML compute capacity.",
            ),
            CapacityUnavailable,
            id="capacity",
        ),
        pytest.param(
            a_run(TrainingStatus.FAILED, reason="InternalServerError: We encountered an internal error."),
            InternalFailure,
            id="internal",
        ),
        pytest.param(
            a_run(TrainingStatus.FAILED, reason="ResourceLimitExceeded: The account-level service limit"),
            ResourceLimitReached,
            id="quota",
        ),
        pytest.param(
            a_run(TrainingStatus.FAILED, reason="ClientError: Cannot pull algorithm container."),
            ImageNotUsable,
            id="image",
        ),
        pytest.param(
            a_run(TrainingStatus.FAILED, reason="ClientError: Data download failed:NoSuchKey (404)"),
            DataNotReadable,
            id="data",
        ),
        pytest.param(
            a_run(TrainingStatus.FAILED, reason="Something new"), TrainingFailed, id="unknown reason"
        ),
        pytest.param(a_run(TrainingStatus.STOPPED), TrainingStopped, id="stopped by somebody"),
        pytest.param(a_run(TrainingStatus.STOPPED, "MaxRuntimeExceeded"), RuntimeExceeded, id="max runtime"),
        pytest.param(a_run(TrainingStatus.STOPPED, "MaxWaitTimeExceeded"), RuntimeExceeded, id="max wait"),
        pytest.param(a_run(TrainingStatus.STOPPED, "Interrupted"), SpotInterrupted, id="spot"),
    ],
)
def test_each_kind_of_failure_has_its_own_error(run, kind):
    error = failure(run)

    assert type(error) is kind
    assert run.job_name in str(error)
    assert (run.failure_reason or run.secondary_status) in str(error)


def test_a_retry_keeps_the_generation_and_a_clear_begins_another():
    retries = 2
    first = generation(max_tries=retries, retries=retries)
    # Airflow's clear: max_tries = try_number + retries
    assert [generation(max_tries=tries + retries, retries=retries) for tries in (1, 2, 3)] == [2, 3, 4]
    assert first == 1


def test_names_fit_and_never_collide_however_long():
    long = ["d" * 250, "d" * 249 + "e", "дата", "a.b", "a-b"]
    names = {
        TaskIdentity(dag_id=dag, run_id=run, task_id=task, map_index=index, generation=number).attempt_name(
            99
        )
        for dag, run, task in product(long, repeat=3)
        for index, number in ((-1, 1), (0, 1), (1, 1), (-1, 12))
    }

    assert len(names) == len(long) ** 3 * 4
    assert max(map(len, names)) <= 63
    import re

    assert all(re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", name) for name in names)
