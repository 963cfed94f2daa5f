from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_smd.domain.training import TrainingStatus
from airflow_smd.errors import (
    AlgorithmFailed,
    CapacityUnavailable,
    InvalidInput,
    NameTaken,
    NotOurs,
    TaskTimedOut,
    TrainingFailed,
    TrainingStopped,
)
from airflow_smd.operators.training import SageMakerDistributedTrainingOperator
from tests.fakes.training import FakeJobLogs, FakeSourceStore, FakeTrainingJobs

ROLE = "arn:aws:iam::123456789012:role/SageMakerRole"
JOB = {
    "entry_point": "wait.py",
    "source_dir": str(Path(__file__).parents[2] / "integration" / "dags" / "wait_code"),
    "role": ROLE,
    "framework_version": "2.2.0",
    "py_version": "py310",
    "instance_type": "ml.p4d.24xlarge",
    "instance_count": 2,
    "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
    "max_run": 3600,
}


class Task:
    """One task and the AWS behind it, tried as often as a test likes."""

    def __init__(self, **changes):
        self.jobs = FakeTrainingJobs()
        self.logs = FakeJobLogs()
        self.source = FakeSourceStore()
        self.arguments = {
            "job": JOB,
            "work_uri": "s3://bucket/smd",
            "deferrable": True,
            "retries": 2,
        } | changes

    def operator(self, **changes) -> SageMakerDistributedTrainingOperator:
        operator = SageMakerDistributedTrainingOperator(task_id="train", **self.arguments | changes)
        operator.jobs, operator.logs, operator.source = self.jobs, self.logs, self.source
        return operator

    @staticmethod
    def context(max_tries: int = 2, map_index: int = -1, run_id: str = "scheduled__1"):
        ti = SimpleNamespace(
            dag_id="smd",
            run_id=run_id,
            task_id="train",
            map_index=map_index,
            max_tries=max_tries,
            try_number=1,
        )
        return {"ti": ti}

    def deferred(self, **context) -> TaskDeferred:
        with pytest.raises(TaskDeferred) as caught:
            self.operator().execute(self.context(**context))
        return caught.value


@pytest.fixture
def task() -> Task:
    return Task()


def only(names) -> str:
    (name,) = names
    return name


def test_a_first_try_launches_one_job_and_gives_its_slot_back(task: Task):
    deferred = task.deferred()

    name = only(task.jobs.runs)
    assert deferred.trigger.job_name == name
    assert deferred.method_name == "finish"
    request = task.jobs.requests[name]
    assert request["TrainingJobName"] == name
    assert request["HyperParameters"]["sagemaker_distributed_dataparallel_enabled"] == "true"
    assert {tag["Key"]: tag["Value"] for tag in request["Tags"]}["airflow:run_id"] == "scheduled__1"


def test_a_retry_follows_the_job_that_runs(task: Task):
    first = task.deferred()
    again = task.deferred()

    assert again.trigger.job_name == first.trigger.job_name
    assert len(task.jobs.runs) == 1


def test_a_retry_takes_the_result_of_a_job_that_succeeded_meanwhile(task: Task):
    task.deferred()
    name = only(task.jobs.runs)
    task.jobs.end(name, TrainingStatus.COMPLETED, metrics={"accuracy": 0.97})

    result = task.operator().execute(task.context())

    assert result["job_name"] == name
    assert result["metrics"] == {"accuracy": 0.97}


def test_a_retry_after_a_failure_starts_the_next_attempt(task: Task):
    task.deferred()
    first = only(task.jobs.runs)
    task.jobs.end(first, TrainingStatus.FAILED, failure_reason="CapacityError: none")

    second = task.deferred().trigger.job_name

    assert first.endswith("-g1-a1")
    assert second.endswith("-g1-a2")


def test_a_clear_trains_again(task: Task):
    task.deferred()
    task.jobs.end(only(task.jobs.runs), TrainingStatus.COMPLETED)

    assert task.deferred(max_tries=3).trigger.job_name.endswith("-g2-a1")


def test_a_job_that_is_being_stopped_is_waited_out_and_then_replaced(task: Task):
    task.deferred()
    first = only(task.jobs.runs)
    task.jobs.stop(first)

    waiting = task.deferred()
    assert waiting.method_name == "execute_again"
    task.jobs.end(first, TrainingStatus.STOPPED)
    with pytest.raises(TaskDeferred) as caught:
        task.operator().execute_again(task.context(), {"job_name": first})

    assert caught.value.trigger.job_name.endswith("-g1-a2")


def test_mapped_tasks_and_runs_have_jobs_of_their_own(task: Task):
    for map_index in (0, 1):
        for run_id in ("scheduled__1", "scheduled__2"):
            task.deferred(map_index=map_index, run_id=run_id)

    assert len(task.jobs.runs) == 4


def test_a_try_that_lost_the_race_follows_the_winner(task: Task):
    class Raced(FakeTrainingJobs):
        def attempts(self, identity):
            return []

    task.jobs = Raced()
    first = task.deferred().trigger.job_name

    assert task.deferred().trigger.job_name == first
    assert len(task.jobs.runs) == 1


def test_a_job_of_our_name_without_our_tag_is_neither_followed_nor_replaced(task: Task):
    class Foreign(FakeTrainingJobs):
        def attempts(self, identity):
            return []

        def launch(self, request):
            raise NameTaken(request["TrainingJobName"])

        def look(self, job_name):
            if job_name not in self.runs:
                super().launch({"TrainingJobName": job_name})
            return self.runs[job_name]

    task.jobs = Foreign()

    with pytest.raises(NotOurs, match="airflow-smd:name"):
        task.operator().execute(task.context())


@pytest.mark.parametrize(
    ("reason", "kind", "final"),
    [
        pytest.param("AlgorithmError: ValueError: bad, exit code: 1", AlgorithmFailed, True, id="user code"),
        pytest.param("CapacityError: no such instances", CapacityUnavailable, False, id="capacity"),
    ],
)
def test_a_failure_is_raised_as_its_kind_with_its_reason(task: Task, reason, kind, final):
    task.deferred()
    name = only(task.jobs.runs)
    task.jobs.end(name, TrainingStatus.FAILED, failure_reason=reason)
    operator = task.operator()

    with pytest.raises(kind, match=reason.partition(":")[0]) as caught:
        operator.resume_execution("finish", {"event": {"job_name": name}}, task.context())

    assert caught.value.worth_a_retry is not final


def test_the_first_error_of_any_host_is_in_the_task_log(task: Task, capsys):
    task.deferred()
    name = only(task.jobs.runs)
    task.logs.lines = {
        "algo-1": ["start", "MPI_ABORT was invoked on rank 3: errorcode 1"],
        "algo-2": [
            "[1,mpirank:3,algo-2]<stderr>:Traceback (most recent call last):",
            "ValueError: shapes differ",
        ],
    }
    task.jobs.end(name, TrainingStatus.FAILED, failure_reason="AlgorithmError: ExitCode 1")

    with pytest.raises(AlgorithmFailed):
        task.operator().finish(task.context(), {"job_name": name})

    assert "ValueError: shapes differ" in capsys.readouterr().out


def test_the_worker_shows_what_the_trigger_had_no_time_to_show(task: Task, capsys):
    task.deferred()
    name = only(task.jobs.runs)
    task.logs.lines = {"algo-1": ["shown before", "accuracy=0.97"]}
    task.jobs.end(name, TrainingStatus.COMPLETED, instance_count=1)
    task.operator().finish(task.context(), {"job_name": name, "log": {"since": 1.0, "ids": []}})

    out = capsys.readouterr().out
    assert "algo-1 | accuracy=0.97" in out
    assert "shown before" not in out


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        pytest.param(TrainingStatus.COMPLETED, None, id="a success stays one"),
        pytest.param(TrainingStatus.FAILED, AlgorithmFailed, id="a failure keeps its kind"),
    ],
)
def test_a_log_that_cannot_be_read_changes_no_outcome(task: Task, status, kind):
    class Unreadable(FakeJobLogs):
        def streams(self, job_name):
            raise ConnectionError("no route")

    task.deferred()
    name = only(task.jobs.runs)
    task.logs = Unreadable()
    task.jobs.end(name, status, failure_reason="AlgorithmError: ExitCode 1" if kind else "")
    event = {"job_name": name, "log": {"since": 0.0, "ids": []}}

    with pytest.raises(kind) if kind else nullcontext():
        task.operator().finish(task.context(), event)


def test_a_job_that_somebody_stopped_is_no_success_and_not_started_again(task: Task):
    task.deferred()
    name = only(task.jobs.runs)
    task.jobs.end(name, TrainingStatus.STOPPED)

    with pytest.raises(TrainingStopped) as caught:
        task.operator().finish(task.context(), {"job_name": name})
    assert caught.value.worth_a_retry is False


def test_a_job_that_was_deleted_under_us_fails_the_task(task: Task):
    with pytest.raises(TrainingFailed, match="deleted"):
        task.operator().finish(task.context(), {"job_name": "gone", "gone": True})


def test_a_timeout_stops_the_job(task: Task):
    task.arguments["execution_timeout"] = timedelta(hours=1)
    deferred = task.deferred()
    assert deferred.trigger.deadline is not None

    with pytest.raises(TaskTimedOut, match="1:00:00"):
        task.operator().finish(task.context(), {"timeout": True, "job_name": deferred.trigger.job_name})

    assert task.jobs.stopped == [deferred.trigger.job_name]


def test_killing_the_worker_stops_the_job_that_it_follows(task: Task):
    operator = task.operator()
    with pytest.raises(TaskDeferred):
        operator.execute(task.context())
    operator.on_kill()

    assert task.jobs.stopped == list(task.jobs.runs)


def test_killing_a_task_that_follows_nothing_stops_nothing(task: Task):
    task.operator().on_kill()

    assert task.jobs.stopped == []


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"instance_count": 0}, id="no nodes"),
        pytest.param({"instance_type": "ml.p4d.24xlrage"}, id="misspelt instance type"),
        pytest.param(
            {"distribution": {"smdistributed": {"dataparalel": {"enabled": True}}}}, id="misspelt key"
        ),
        pytest.param({"role": "SageMakerRole"}, id="a role that is no ARN"),
        pytest.param({"use_spot_instances": True}, id="Spot without a longest wait"),
        pytest.param({"entry_point": "wiat.py"}, id="a script that is not there"),
    ],
)
def test_a_wrong_job_is_refused_before_anything_is_created(wrong):
    task = Task(job=JOB | wrong)

    with pytest.raises(InvalidInput) as caught:
        task.operator().execute(task.context())

    assert task.jobs.runs == {}
    assert task.source.uploads == []
    assert all(problem.remedy for problem in caught.value.problems)


def test_all_problems_of_a_job_are_reported_together():
    task = Task(job=JOB | {"instance_count": 0, "role": "me", "instance_type": "ml.p9.huge"})

    with pytest.raises(InvalidInput) as caught:
        task.operator().execute(task.context())

    fields = " ".join(problem.field for problem in caught.value.problems)
    assert "instance_count" in fields
    assert "role" in fields


def test_a_file_system_becomes_the_training_channel_and_the_network(task: Task):
    source = {
        "FileSystemDataSource": {
            "FileSystemId": "fs-0123456789abcdef0",
            "FileSystemType": "FSxLustre",
            "FileSystemAccessMode": "ro",
            "DirectoryPath": "/abcd1234/dataset",
        }
    }
    vpc = {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    task.arguments["file_system"] = {"data_source": source, "vpc_config": vpc}
    task.deferred()

    request = task.jobs.requests[only(task.jobs.runs)]
    assert request["VpcConfig"] == vpc
    assert [channel["DataSource"] for channel in request["InputDataConfig"]] == [source]


def test_without_a_file_system_worth_its_price_the_data_is_read_from_s3(task: Task):
    task.arguments["file_system"] = {
        "file_system_id": None,
        "data_source": {"S3DataSource": {"S3Uri": "s3://bucket/shards/", "S3DataType": "S3Prefix"}},
        "input_mode": "FastFile",
    }
    task.deferred()

    (channel,) = task.jobs.requests[only(task.jobs.runs)]["InputDataConfig"]
    assert channel["InputMode"] == "FastFile"
    assert channel["DataSource"]["S3DataSource"]["S3Uri"] == "s3://bucket/shards/"


def test_overrides_reach_any_field_and_keep_our_tags(task: Task):
    task.arguments["overrides"] = {
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        "Tags": [{"Key": "a", "Value": "b"}],
    }
    task.deferred()

    request = task.jobs.requests[only(task.jobs.runs)]
    assert request["StoppingCondition"]["MaxRuntimeInSeconds"] == 60
    assert {"a", "airflow-smd:name"} <= {tag["Key"] for tag in request["Tags"]}
