"""Processing jobs: the fake and the sandbox keep the same promises, and botocore takes what we send."""

from __future__ import annotations

import inspect
import time
from types import SimpleNamespace
from uuid import uuid4

import botocore.session
import pytest
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from airflow_smd.aws.dataset import Datasets
from airflow_smd.aws.preprocess_code import code_files
from airflow_smd.aws.processing import ProcessingJobs
from airflow_smd.container.shards import ShardReader
from airflow_smd.container.transforms import TRANSFORMS
from airflow_smd.domain.dataset import Source, SourceObject
from airflow_smd.domain.identity import TaskIdentity
from airflow_smd.domain.preprocess import plan, request
from airflow_smd.domain.preprocess_arguments import INSTANCE_TYPE, wish_of
from airflow_smd.domain.processing import ProcessingStatus, outcome
from airflow_smd.domain.training import Outcome
from airflow_smd.domain.transforms import OPTIONS
from airflow_smd.errors import (
    NameTaken,
    PreprocessFailed,
    PreprocessTransient,
    ProcessingRefused,
    UnexpectedAnswer,
)
from airflow_smd.operators.preprocess import SageMakerPreprocessOperator
from tests.fakes.dataset import FakeDatasets
from tests.fakes.processing import FakeProcessingJobs

LIMIT_SECONDS = 90
EVERYTHING = {
    "volume_gb": 50,
    "max_run_seconds": 600,
    "subnets": ["subnet-1"],
    "security_group_ids": ["sg-1"],
    "kms_key_id": "key",
    "environment": {"A": "1"},
}


def arguments(bucket, **changes):
    return {
        "source_uri": f"s3://{bucket}/raw",
        "output_uri": f"s3://{bucket}/shards",
        "transform": {"kind": "tabular", "dtype": "uint8"},
        "world_sizes": [1, 2],
        "role": "arn:aws:iam::123456789012:role/SageMakerRole",
        "instance_type": "ml.m5.xlarge",
        "instance_count": 1,
        **changes,
    }


def model(name):
    return botocore.session.get_session().get_service_model("sagemaker").shape_for(name)


@pytest.mark.parametrize("job", [{}, EVERYTHING], ids=["defaults", "every option"])
def test_botocore_takes_the_request(job):
    source = Source(uri="s3://b/raw/", objects=[SourceObject(name="a", etag="1", size_bytes=1)])
    tags = TaskIdentity(dag_id="d" * 250, run_id="r", task_id="t").tags
    made = plan(wish_of(arguments("b", job=job)), source)

    wanted = request(made, job_name="j", code_uri="s3://b/c/", region="us-east-1", tags=tags)

    report = ParamValidator().validate(wanted, model("CreateProcessingJobRequest"))
    assert not report.has_errors(), report.generate_report()


def test_the_states_are_those_of_botocore():
    assert set(ProcessingStatus) == set(model("ProcessingJobStatus").enum)


def test_every_instance_type_of_botocore_has_the_form_we_ask_for():
    assert [name for name in model("ProcessingInstanceType").enum if not INSTANCE_TYPE.fullmatch(name)] == []


@pytest.mark.parametrize("kind", list(OPTIONS))
def test_plan_and_container_know_the_same_options(kind):
    taken = set(inspect.signature(TRANSFORMS[kind].__init__).parameters) - {"self"}

    assert set(OPTIONS[kind]) - {"on_bad", "max_bad"} == taken


class OnFake:
    def __init__(self):
        self.bucket = "data"
        self.datasets = FakeDatasets(self.bucket)
        self.jobs = FakeProcessingJobs()

    def put(self, key, content):
        self.datasets.put(self.bucket, key, content)

    def until_over(self, name):
        self.jobs.work(name, self.datasets)
        return self.jobs.look(name)


class OnSandbox:
    def __init__(self, sandbox):
        self.bucket = f"data-{uuid4().hex[:8]}"
        self.client = sandbox.client("s3")
        self.client.create_bucket(Bucket=self.bucket)
        self.datasets = Datasets(self.client, region=sandbox.region)
        self.jobs = ProcessingJobs(sandbox.client("sagemaker"))

    def put(self, key, content):
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def until_over(self, name):
        limit = time.monotonic() + LIMIT_SECONDS
        while outcome(self.jobs.look(name).status) not in (Outcome.SUCCEEDED, Outcome.FAILED):
            assert time.monotonic() < limit, f"{name} did not end"
            time.sleep(0.2)
        return self.jobs.look(name)


def with_data(place, rows=40):
    for number in range(4):
        lines = "".join(f"{number},{row},{row % 10}\n" for row in range(rows))
        place.put(f"raw/{number}.csv", lines.encode())
    return place


@pytest.fixture(params=["fake", "sandbox"])
def place(request):
    """Return AWS with four files of raw data, as the fake and as the sandbox have it."""
    return with_data(OnFake() if request.param == "fake" else OnSandbox(request.getfixturevalue("sandbox")))


@pytest.fixture
def identity():
    return TaskIdentity(dag_id="d", run_id=uuid4().hex, task_id="preprocess")


def wanted(place, identity, attempt=1, **changes):
    made = plan(
        wish_of(arguments(place.bucket, **changes)),
        place.datasets.source(wish_of(arguments(place.bucket)).source),
    )
    code = made.wish.output / "_code" / identity.base_name
    place.datasets.upload(code, {**code_files(None), "job.json": made.job_file().encode()})
    return request(
        made,
        job_name=identity.attempt_name(attempt),
        code_uri=code.uri,
        region=place.jobs.region,
        tags=identity.tags,
    )


def test_a_job_runs_and_ends_with_its_facts(place, identity):
    asked = wanted(place, identity, instance_count=2)
    place.jobs.launch(asked)
    assert place.jobs.look(identity.attempt_name(1)).status is ProcessingStatus.IN_PROGRESS

    run = place.until_over(identity.attempt_name(1))

    assert run.status is ProcessingStatus.COMPLETED, run
    assert (run.instance_type, run.instance_count) == ("ml.m5.xlarge", 2)
    assert run.output_uri == asked["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"]
    assert run.seconds >= 0


def test_the_attempts_of_a_task_are_found_by_their_names(place, identity):
    assert place.jobs.attempts(identity) == []
    place.jobs.launch(wanted(place, identity))

    assert [run.job_name for run in place.jobs.attempts(identity)] == [identity.attempt_name(1)]


def test_a_name_is_given_once(place, identity):
    place.jobs.launch(wanted(place, identity))

    with pytest.raises(NameTaken):
        place.jobs.launch(wanted(place, identity))


def test_a_job_says_who_started_it(place, identity):
    place.jobs.launch(wanted(place, identity))

    run = place.jobs.look(identity.attempt_name(1))
    assert place.jobs.owner(run.job_arn) == identity.base_name


def test_a_job_that_is_not_there_is_none(place):
    assert place.jobs.look("nobody-made-this") is None


def test_stopping_what_is_not_there_or_over_is_no_error(place, identity):
    place.jobs.stop("nobody-made-this")
    place.jobs.launch(wanted(place, identity))
    place.until_over(identity.attempt_name(1))

    place.jobs.stop(identity.attempt_name(1))

    assert place.jobs.look(identity.attempt_name(1)).status is ProcessingStatus.COMPLETED


@pytest.fixture
def on_sandbox(sandbox):
    return with_data(OnSandbox(sandbox))


def test_a_failed_job_says_what_the_container_said(on_sandbox, identity):
    on_sandbox.put("raw/2.csv", b"1,2,3\n1,two,3\n")
    on_sandbox.jobs.launch(wanted(on_sandbox, identity))

    run = on_sandbox.until_over(identity.attempt_name(1))

    assert run.status is ProcessingStatus.FAILED
    assert "algo-1: a bad sample" in run.exit_message
    assert "2.csv row 2" in run.exit_message
    assert run.failure_reason


def test_a_running_job_stops_when_asked(on_sandbox, identity):
    asked = wanted(on_sandbox, identity)
    asked["AppSpecification"]["ContainerEntrypoint"] = ["python3", "-c", "import time; time.sleep(600)"]
    on_sandbox.jobs.launch(asked)

    on_sandbox.jobs.stop(identity.attempt_name(1))

    assert on_sandbox.until_over(identity.attempt_name(1)).status is ProcessingStatus.STOPPED


def test_what_sagemaker_refuses_is_told_with_its_words(on_sandbox, identity):
    asked = wanted(on_sandbox, identity)
    asked["ProcessingResources"]["ClusterConfig"]["InstanceType"] = "ml.m5.xxlarge"

    with pytest.raises(ProcessingRefused, match=r"ml\.m5\.xxlarge"):
        on_sandbox.jobs.launch(asked)


def operator(place, **changes):
    return SageMakerPreprocessOperator(
        task_id="preprocess", deferrable=False, poll_seconds=0.3, **arguments(place.bucket, **changes)
    )


@pytest.fixture
def connected(sandbox, monkeypatch, on_sandbox):
    for name, value in sandbox.environment.items():
        monkeypatch.setenv(name, value)
    return on_sandbox


def context(run_id):
    ti = SimpleNamespace(dag_id="d", run_id=run_id, task_id="preprocess", map_index=-1, max_tries=0)
    return {"ti": ti}


@pytest.mark.parametrize("instances", [1, 2])
def test_the_whole_task_makes_shards_that_every_rank_reads(connected, tmp_path, instances):
    run_id = uuid4().hex

    result = operator(connected, instance_count=instances).execute(context(run_id))

    prefix = result["uri"].removeprefix(f"s3://{connected.bucket}/")
    for item in connected.client.list_objects_v2(Bucket=connected.bucket, Prefix=prefix)["Contents"]:
        path = tmp_path / item["Key"].removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(connected.client.get_object(Bucket=connected.bucket, Key=item["Key"])["Body"].read())
    readers = [
        ShardReader(tmp_path, split, rank=rank, world_size=2)
        for split in ("train", "validation")
        for rank in range(2)
    ]
    keys = [sample["__key__"] for reader in readers for sample in reader.epoch()]
    assert result["samples"] == 160
    assert len(set(keys)) == len(keys) >= 160 - 2 * instances
    assert operator(connected).execute(context(uuid4().hex))["reused"]


def test_a_failed_task_names_the_row_and_may_be_mended_and_tried_again(connected):
    run_id = uuid4().hex
    connected.put("raw/2.csv", b"1,2,3\n1,two,3\n")
    with pytest.raises(PreprocessFailed, match=r"2\.csv row 2: .*'two'"):
        operator(connected).execute(context(run_id))

    connected.put("raw/2.csv", b"1,2,3\n1,2,3\n" * 20)

    assert operator(connected).execute(context(run_id))["samples"] == 160


class Answering:
    """A SageMaker client that gives one answer, or one error."""

    def __init__(self, answer):
        self.answer = answer

    def describe_processing_job(self, **_arguments):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def create_processing_job(self, **_arguments):
        raise self.answer


@pytest.mark.parametrize(
    ("code", "kind", "worth_a_retry"),
    [
        ("ResourceInUse", NameTaken, True),
        ("ResourceLimitExceeded", PreprocessTransient, True),
        ("ValidationException", ProcessingRefused, False),
        ("AccessDeniedException", ProcessingRefused, False),
        ("ThrottlingException", ClientError, None),
    ],
)
def test_refusals_to_create_are_told_apart(code, kind, worth_a_retry):
    error = ClientError({"Error": {"Code": code, "Message": "said SageMaker"}}, "CreateProcessingJob")

    with pytest.raises(kind) as caught:
        ProcessingJobs(Answering(error)).launch({"ProcessingJobName": "j"})

    assert getattr(caught.value, "worth_a_retry", None) is worth_a_retry


def test_a_state_that_is_not_known_is_never_success():
    answer = {"ProcessingJobName": "j", "ProcessingJobStatus": "Dreaming"}

    with pytest.raises(UnexpectedAnswer, match="Dreaming"):
        ProcessingJobs(Answering(answer)).look("j")


@pytest.mark.parametrize("code", ["ResourceNotFound", "ValidationException"])
def test_both_words_of_aws_for_an_unknown_name_are_understood(code):
    error = ClientError({"Error": {"Code": code, "Message": "Could not find requested job"}}, "Describe")

    assert ProcessingJobs(Answering(error)).look("j") is None


def test_throttling_is_not_taken_for_absence():
    error = ClientError({"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, "Describe")

    with pytest.raises(ClientError):
        ProcessingJobs(Answering(error)).look("j")
