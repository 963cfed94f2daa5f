from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import DAG

from airflow_smd.domain.processing import ProcessingStatus
from airflow_smd.errors import (
    BucketMissing,
    DatasetEmpty,
    InvalidInput,
    NotOurs,
    PreprocessFailed,
    PreprocessStopped,
    SourceChanged,
    TaskTimedOut,
)
from airflow_smd.operators.preprocess import SageMakerPreprocessOperator
from tests.fakes.dataset import FakeDatasets
from tests.fakes.processing import FakeProcessingJobs

ARGUMENTS = {
    "source_uri": "s3://data/raw/",
    "output_uri": "s3://data/shards",
    "transform": {"kind": "tabular", "label_column": -1},
    "world_sizes": [1, 2],
    "role": "arn:aws:iam::123456789012:role/Worker",
}


def context(max_tries=0):
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="preprocess", map_index=-1, max_tries=max_tries)
    return {"ti": ti}


@pytest.fixture
def jobs():
    return FakeProcessingJobs()


@pytest.fixture
def datasets():
    fake = FakeDatasets("data")
    for number in range(4):
        fake.put("data", f"raw/digits-{number}.csv", b"1,2,3\n" * (number + 1))
    return fake


@pytest.fixture
def task(jobs, datasets):
    def make(**changes):
        operator = SageMakerPreprocessOperator(
            task_id="preprocess", deferrable=True, **{**ARGUMENTS, **changes}
        )
        # the two are cached properties, so what is set here is what the operator uses
        operator.jobs, operator.datasets = jobs, datasets
        return operator

    return make


def launched(operator, at=None):
    """Execute and return the event that the trigger will fire."""
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(at or context())
    trigger = deferred.value.trigger
    return {"job_name": trigger.job_name, **trigger.carry}


def test_new_data_become_one_job_and_one_seal(task, jobs, datasets):
    event = launched(task(instance_count=2))
    jobs.work(event["job_name"], datasets)

    result = task(instance_count=2).finish(context(), event)

    assert list(jobs.runs) == [event["job_name"]]
    assert (result["reused"], result["samples"], result["shards"], result["seconds"]) == (False, 4, 2, 60.0)
    manifest = json.loads(datasets.objects["data", result["manifest_uri"].removeprefix("s3://data/")])
    assert manifest["source"]["files"] == 4
    assert len(manifest["splits"]["train"]["shards"]) == 2


def test_the_result_is_small_json(task, jobs, datasets):
    event = launched(task())
    jobs.work(event["job_name"], datasets, splits=("train", "validation"))

    result = task().finish(context(), event)

    assert len(json.dumps(result)) < 1000
    assert set(result["splits"]) == {"train", "validation"}
    assert result["bytes"] == sum(split["bytes"] for split in result["splits"].values())


def test_unchanged_data_are_found_done_without_a_job(task, jobs, datasets):
    event = launched(task())
    jobs.work(event["job_name"], datasets)
    first = task().finish(context(), event)

    again = task(instance_count=3).execute(context(max_tries=1))

    assert (again["reused"], again["uri"], len(jobs.runs)) == (True, first["uri"], 1)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"world_sizes": [1, 2, 4]}, id="another world size"),
        pytest.param({"transform": {"kind": "tabular", "dtype": "uint8"}}, id="another transform"),
        pytest.param({"sharding": {"seed": 1}}, id="another seed"),
        pytest.param({"sharding": {"validation_fraction": 0}}, id="another split"),
    ],
)
def test_another_wish_is_another_data_set(task, jobs, datasets, changes):
    event = launched(task())
    jobs.work(event["job_name"], datasets)
    task().finish(context(), event)

    other = launched(task(**changes), context(max_tries=1))

    assert other["fingerprint"] != event["fingerprint"]


def test_a_retry_follows_the_running_job(task, jobs):
    first = launched(task())
    second = launched(task())

    assert (first["job_name"], len(jobs.runs)) == (second["job_name"], 1)


def test_a_retry_seals_what_a_dead_worker_left_unsealed(task, jobs, datasets):
    first = launched(task())
    jobs.work(first["job_name"], datasets)

    again = launched(task())

    assert again["job_name"] == first["job_name"]
    assert task().finish(context(), again)["reused"] is False


def test_a_retry_after_a_failure_starts_the_next_attempt(task, jobs):
    first = launched(task())
    jobs.end(first["job_name"], ProcessingStatus.FAILED)

    second = launched(task())

    assert (first["job_name"][-3:], second["job_name"][-3:]) == ("-a1", "-a2")


def test_clearing_the_task_starts_a_new_generation(task, jobs):
    first = launched(task())
    jobs.end(first["job_name"], ProcessingStatus.FAILED)

    assert launched(task(), context(max_tries=1))["job_name"].endswith("-g2-a1")


def test_a_job_for_data_that_have_changed_is_stopped_and_replaced(task, jobs, datasets):
    first = launched(task())
    datasets.put("data", "raw/digits-9.csv", b"1,2,3\n")

    with pytest.raises(TaskDeferred) as deferred:
        task().execute(context())
    assert (deferred.value.method_name, jobs.stopped) == ("execute_again", [first["job_name"]])

    jobs.end(first["job_name"], ProcessingStatus.STOPPED)
    with pytest.raises(TaskDeferred) as deferred:
        task().execute_again(context(), {"job_name": first["job_name"]})
    assert deferred.value.trigger.job_name.endswith("-a2")


def test_another_worker_that_was_quicker_is_followed(task, jobs):
    first = launched(task())
    hidden = FakeProcessingJobs()
    hidden.launch, hidden.look, hidden.owner = jobs.launch, jobs.look, jobs.owner
    hidden.attempts = lambda identity: []
    late = task()
    late.jobs = hidden

    assert launched(late)["job_name"] == first["job_name"]


def test_a_strangers_job_of_our_name_is_left_alone(task, jobs):
    first = launched(task())
    hidden = FakeProcessingJobs()
    hidden.launch, hidden.look = jobs.launch, jobs.look
    hidden.attempts, hidden.owner = lambda identity: [], lambda arn: None
    late = task()
    late.jobs = hidden

    with pytest.raises(NotOurs, match=first["job_name"]):
        late.execute(context())


def test_the_job_says_who_pays(task, jobs):
    event = launched(task())

    tags = {tag["Key"]: tag["Value"] for tag in jobs.requests[event["job_name"]]["Tags"]}
    assert (tags["airflow:dag_id"], tags["airflow:task_id"]) == ("d", "preprocess")


def test_code_and_job_lie_where_the_request_points(task, jobs, datasets):
    event = launched(task())

    code = jobs.requests[event["job_name"]]["ProcessingInputs"][1]["S3Input"]["S3Uri"]
    prefix = code.removeprefix("s3://data/")
    assert ("data", f"{prefix}preprocess.pyz") in datasets.objects
    told = json.loads(datasets.objects["data", f"{prefix}job.json"])
    assert (told["world_sizes"], told["fingerprint"]) == ([1, 2], event["fingerprint"])


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        pytest.param(
            {"exit_message": "algo-1: a.csv row 2: bad", "failure_reason": "AlgorithmError: exit 1"},
            PreprocessFailed,
            "a.csv row 2: bad",
            id="the container says why",
        ),
        pytest.param(
            {"failure_reason": "ClientError: no such image"}, PreprocessFailed, "no such image", id="AWS says"
        ),
        pytest.param({}, PreprocessFailed, "no reason", id="nobody says"),
        pytest.param(
            {"failure_reason": "CapacityError: none left"}, PreprocessFailed, "try again later", id="capacity"
        ),
    ],
)
def test_a_failed_job_is_an_error_with_its_reason(task, jobs, changes, error, said):
    event = launched(task())
    jobs.end(event["job_name"], ProcessingStatus.FAILED, **changes)

    with pytest.raises(error, match=said):
        task().finish(context(), event)


def test_only_failures_of_aws_are_worth_a_retry(task, jobs):
    event = launched(task())
    for reason, worth in (("CapacityError: x", True), ("AlgorithmError: x", False)):
        jobs.end(event["job_name"], ProcessingStatus.FAILED, failure_reason=reason)
        with pytest.raises(PreprocessFailed) as caught:
            task().finish(context(), event)
        assert caught.value.worth_a_retry is worth


def test_a_stopped_job_is_no_success(task, jobs):
    event = launched(task())
    jobs.end(event["job_name"], ProcessingStatus.STOPPED)

    with pytest.raises(PreprocessStopped):
        task().finish(context(), event)


def test_a_job_that_vanished_is_no_success(task, jobs):
    event = launched(task())
    del jobs.runs[event["job_name"]]

    with pytest.raises(PreprocessFailed, match="was deleted"):
        task().finish(context(), event)


def test_a_timeout_stops_the_job(task, jobs):
    event = launched(task())

    with pytest.raises(TaskTimedOut):
        task().finish(context(), {"timeout": True, "job_name": event["job_name"]})

    assert jobs.stopped == [event["job_name"]]


def test_killing_the_task_stops_the_job(task, jobs):
    operator = task()
    event = launched(operator)

    operator.on_kill()

    assert jobs.stopped == [event["job_name"]]


def test_killing_a_task_that_started_nothing_stops_nothing(task, jobs):
    task().on_kill()

    assert jobs.stopped == []


def test_data_that_changed_while_they_were_read_are_not_sealed(task, jobs, datasets):
    event = launched(task())
    jobs.work(event["job_name"], datasets)
    datasets.put("data", "raw/digits-0.csv", b"9,9,9\n")

    with pytest.raises(SourceChanged, match="s3://data/raw/"):
        task().finish(context(), event)


def test_a_host_that_left_no_part_is_named(task, jobs, datasets):
    event = launched(task(instance_count=2))
    jobs.work(event["job_name"], datasets)
    del datasets.objects["data", f"shards/{event['fingerprint']}/parts/part-1of2.json"]

    with pytest.raises(PreprocessFailed, match=r"partial manifests of hosts \[1\] of 2"):
        task(instance_count=2).finish(context(), event)


def test_a_shard_that_did_not_arrive_is_named(task, jobs, datasets):
    event = launched(task())
    jobs.work(event["job_name"], datasets)
    datasets.put("data", f"shards/{event['fingerprint']}/train/shard-0of1-000000.tar", b"cut")

    with pytest.raises(PreprocessFailed, match="shard-0of1-000000"):
        task().finish(context(), event)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        pytest.param({"source_uri": "s3://nowhere/raw"}, BucketMissing, "s3://nowhere/raw/", id="no bucket"),
        pytest.param({"source_uri": "s3://data/nothing"}, DatasetEmpty, "s3://data/nothing/", id="no object"),
        pytest.param({"source_uri": "s3://data/raw/digits-0.csv"}, DatasetEmpty, "folder", id="one object"),
        pytest.param({"instance_count": 5}, InvalidInput, "instance_count=5", id="more instances than files"),
        pytest.param(
            {"transform": {"kind": "function", "function": "a:b"}, "code_dir": "/nowhere"},
            InvalidInput,
            "code_dir",
            id="no code",
        ),
    ],
)
def test_bad_input_is_found_before_anything_is_created(task, jobs, datasets, changes, error, said):
    before = dict(datasets.objects)

    with pytest.raises(error, match=said):
        task(**changes).execute(context())

    assert (jobs.runs, datasets.objects) == ({}, before)


def test_rendered_strings_are_read_as_what_they_mean(task, jobs):
    operator = task()
    operator.world_sizes, operator.instance_count = "[1, 2]", "2"
    operator.transform = '{"kind": "tabular", "label_column": -1}'

    event = launched(operator)

    assert jobs.runs[event["job_name"]].instance_count == 2
    assert event["fingerprint"] == launched(task())["fingerprint"]


def test_fixed_mistakes_are_refused_when_the_dag_is_parsed():
    with pytest.raises(InvalidInput) as caught:
        SageMakerPreprocessOperator(
            task_id="preprocess", **{**ARGUMENTS, "role": "me", "instance_count": 0, "world_sizes": []}
        )

    assert {problem.field for problem in caught.value.problems} == {"role", "instance_count", "world_sizes"}


def test_templates_are_not_judged_before_they_are_rendered():
    """As in dags/smd_retrain.py."""
    with DAG("d"):
        SageMakerPreprocessOperator(
            task_id="preprocess",
            source_uri="{{ params.dataset_uri }}",
            output_uri="{{ var.json.smd.work_uri }}/shards",
            transform="{{ params.transform }}",
            world_sizes=["{{ params.nodes * 8 }}"],
            role="{{ var.json.smd.role }}",
            instance_type="{{ params.instance_type }}",
            instance_count="{{ params.nodes }}",
            sharding={"seed": "{{ params.seed }}"},
            job="{{ params.job }}",
        )


def test_the_waiting_can_stay_in_the_worker(task, jobs, datasets):
    operator = task()
    operator.deferrable = False
    launched(task())
    jobs.work(next(iter(jobs.runs)), datasets)
    seen = []
    operator.wait = lambda context, trigger, method: (
        seen.append(method) or operator.finish(context, {"job_name": trigger.job_name, **trigger.carry})
    )

    assert operator.execute(context())["samples"] == 4
    assert seen == ["finish"]
