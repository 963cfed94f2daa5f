"""What is wrong with a DAG file's own values fails its import, with every problem at once."""

import subprocess
import sys

import pytest

from airflow_smd import operators
from airflow_smd.errors import InvalidInput
from airflow_smd.operators.base import known_at_parse

JOB = {
    "entry_point": "train.py",
    "source_dir": "/code",
    "role": "arn:aws:iam::123456789012:role/SageMakerRole",
    "framework_version": "2.2.0",
    "py_version": "py310",
    "instance_type": "ml.p4d.24xlarge",
    "instance_count": 2,
    "max_run": 3600,
}
WORK = "s3://bucket/smd"
TRAIN = {"job": JOB, "work_uri": WORK}
GOOD = {
    "SageMakerDistributedTrainingOperator": TRAIN,
    "TrainingPreflightOperator": TRAIN | {"source_uri": "s3://raw/digits/", "budget_usd": 50},
    "SageMakerPreprocessOperator": {
        "source_uri": "s3://raw/digits/",
        "output_uri": WORK,
        "transform": {"kind": "copy"},
        "world_sizes": [8],
        "role": JOB["role"],
    },
    "LustreCreateOperator": {
        "dataset": {"uri": "s3://bucket/shards/", "bytes": "100GB"},
        "nodes": 2,
        "subnet_id": "subnet-0123456789abcdef0",
        "security_group_ids": ["sg-0123456789abcdef0"],
    },
    "LustreDeleteOperator": {"create_task_id": "create"},
    "TrainingImageBuildOperator": {
        "repository": "digits",
        "work_uri": WORK,
        "base_image": "python:3.11",
        "codebuild_role_arn": JOB["role"],
    },
    "TrainingReportOperator": {"training": {}, "work_uri": WORK},
    "SweepOperator": {"grace_seconds": 3600, "dry_run": False, "time_to_live_seconds": None},
}
REFUSED = [
    pytest.param(
        "SageMakerDistributedTrainingOperator",
        {"job": JOB | {"instance_count": 0, "role": "me"}, "work_uri": "work", "inputs": "raw"},
        {"instance_count", "role", "work_uri", "inputs"},
        id="training",
    ),
    pytest.param(
        "SageMakerDistributedTrainingOperator", {"job": "train.py"}, {"job"}, id="a job that is no mapping"
    ),
    pytest.param(
        "TrainingPreflightOperator",
        {"job": JOB | {"max_run": 0}, "source_uri": "raw", "work_uri": "s3:/work", "budget_usd": "much"},
        {"max_run", "source_uri", "work_uri", "budget_usd"},
        id="preflight",
    ),
    pytest.param(
        "SageMakerPreprocessOperator",
        {"source_uri": "raw", "world_sizes": [0], "role": "me"},
        {"source_uri", "world_sizes[0]", "role"},
        id="preprocess",
    ),
    pytest.param(
        "LustreCreateOperator",
        {"dataset": {"uri": "raw"}, "nodes": 0, "subnet_id": "mine", "plan": {"size": 1200}},
        {"dataset.uri", "dataset.bytes", "nodes", "subnet_id", "plan"},
        id="create file system",
    ),
    pytest.param("LustreDeleteOperator", {"create_task_id": None}, {"file_system"}, id="delete file system"),
    pytest.param(
        "TrainingImageBuildOperator",
        {"repository": "Digits!", "work_uri": "work", "build": {"timeout_minutes": 1}},
        {"repository", "work_uri", "build.timeout_minutes"},
        id="image",
    ),
    pytest.param("TrainingReportOperator", {"work_uri": "work"}, {"work_uri"}, id="report"),
    pytest.param(
        "SweepOperator",
        {"grace_seconds": -1, "dry_run": "perhaps", "time_to_live_seconds": "a day"},
        {"grace_seconds", "dry_run", "time_to_live_seconds"},
        id="sweep",
    ),
    *(
        pytest.param(name, {"poll_seconds": -1}, {"poll_seconds"}, id=f"a negative pause, {name}")
        for name in GOOD
    ),
]


def make(name, changes=None):
    return getattr(operators, name)(task_id="task", **GOOD[name] | (changes or {}))


def test_every_operator_is_here():
    assert set(GOOD) == set(operators.__all__)


@pytest.mark.parametrize("name", GOOD)
def test_good_values_are_taken(name):
    assert make(name).task_id == "task"


@pytest.mark.parametrize(("name", "changes", "fields"), REFUSED)
def test_all_that_is_wrong_is_refused_at_once(name, changes, fields):
    with pytest.raises(InvalidInput) as refused:
        make(name, changes)

    assert fields <= {problem.field for problem in refused.value.problems}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"job": JOB | {"instance_count": "{{ params.nodes }}", "role": "me"}}, id="in the job"),
        pytest.param({"job": "{{ var.json.job }}"}, id="for the job"),
        pytest.param({"work_uri": "{{ var.value.work }}"}, id="for a folder"),
        pytest.param({"inputs": {"training": "{{ ti.xcom_pull('shards') }}"}}, id="in the inputs"),
    ],
)
def test_a_template_is_left_for_the_run(changes):
    make("SageMakerDistributedTrainingOperator", changes)


def test_a_rule_that_is_left_out_refuses_nothing():
    make(
        "SageMakerDistributedTrainingOperator",
        {"job": JOB | {"role": "me"}, "ignore_rules": ["role-arn"]},
    )


def test_what_the_file_systems_task_tells_is_not_missed_yet():
    channel = {
        "file_system_id": "fs-0123456789abcdef0",
        "file_system_type": "FSxLustre",
        "directory_path": "/x",
    }

    make(
        "SageMakerDistributedTrainingOperator",
        {"inputs": {"more": channel}, "file_system": {"vpc_config": 1}},
    )


def test_another_tasks_output_is_not_known_at_parse():
    output = make("LustreCreateOperator").output

    assert not known_at_parse(output)
    assert not known_at_parse({"dataset": [output]})


def test_linting_a_job_at_parse_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from airflow.sdk import DAG, BaseOperator\n"
        "before = set(sys.modules)\n"
        "from airflow_smd.operators import SageMakerDistributedTrainingOperator as Train\n"
        f"Train(task_id='train', job={JOB!r}, work_uri={WORK!r})\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert set(answer.stdout.split()).isdisjoint(
        {"boto3", "botocore", "sagemaker", "numpy", "pandas", "moto"}
    )
