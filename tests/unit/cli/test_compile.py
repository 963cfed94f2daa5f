"""airflow-smd compile: the request on standard output, or the problems as JSON on standard error."""

import json
import re

import pytest

from airflow_smd.cli import main

JOB = {
    "estimator": "PyTorch",
    "region": "us-west-2",
    "kwargs": {
        "role": "arn:aws:iam::123456789012:role/SageMakerRole",
        "entry_point": "train.py",
        "framework_version": "1.13.1",
        "py_version": "py39",
        "instance_type": "ml.p3.16xlarge",
        "instance_count": 1,
        "base_job_name": "smd",
        "distribution": {
            "smdistributed": {"modelparallel": {"enabled": True, "parameters": "smp.json"}},
            "mpi": {"enabled": True, "processes_per_host": 8},
        },
    },
    "fit": "s3://b/data/",
}
PARAMETERS = {"pipeline_parallel_degree": 2, "ddp": True}


@pytest.fixture
def job(tmp_path):
    (tmp_path / "smp.json").write_text(json.dumps(PARAMETERS))
    path = tmp_path / "job.json"
    path.write_text(json.dumps(JOB))
    return path


def test_the_request_is_printed_with_a_name_as_the_sdk_makes_it(job, capsys):
    assert main(["compile", str(job)]) == 0

    request = json.loads(capsys.readouterr().out)
    assert re.fullmatch(r"smd(-\d\d(\d\d)?){6}-\d{3}", request["TrainingJobName"])
    assert json.loads(request["HyperParameters"]["sagemaker_job_name"]) == request["TrainingJobName"]


def test_parameters_in_a_file_beside_the_job_are_read(job, capsys):
    main(["compile", str(job), "--name", "smd-1"])

    request = json.loads(capsys.readouterr().out)
    assert json.loads(request["HyperParameters"]["mp_parameters"]) == PARAMETERS


def test_a_file_elsewhere_is_not_read(job, capsys):
    data = json.loads(job.read_text())
    data["kwargs"]["distribution"]["smdistributed"]["modelparallel"]["parameters"] = "../smp.json"
    job.write_text(json.dumps(data))

    assert main(["compile", str(job)]) == 1
    assert "smp-parameters" in capsys.readouterr().err


def test_problems_go_to_standard_error_as_json(job, capsys):
    data = json.loads(job.read_text())
    data["kwargs"]["instance_type"] = "ml.p5.48xlarge"
    job.write_text(json.dumps(data))

    assert main(["compile", str(job)]) == 1

    captured = capsys.readouterr()
    assert captured.out == ""
    assert [p["rule"] for p in json.loads(captured.err)["problems"]] == ["smp1-instance"]


def test_overrides_reach_the_request(job, capsys):
    overrides = '{"StoppingCondition": {"MaxRuntimeInSeconds": 60}}'

    assert main(["compile", str(job), "--overrides", overrides]) == 0
    assert json.loads(capsys.readouterr().out)["StoppingCondition"] == {"MaxRuntimeInSeconds": 60}


@pytest.mark.parametrize("overrides", ["{", "[1]"], ids=["broken", "no object"])
def test_overrides_that_are_no_object_are_refused(job, capsys, overrides):
    assert main(["compile", str(job), "--overrides", overrides]) == 1
    assert "overrides" in capsys.readouterr().err


def test_a_name_comes_from_the_image_where_none_is_given(job, capsys):
    data = json.loads(job.read_text())
    del data["kwargs"]["base_job_name"]
    job.write_text(json.dumps(data))

    main(["compile", str(job)])

    assert json.loads(capsys.readouterr().out)["TrainingJobName"].startswith("pytorch-training-20")


def test_python_is_not_compiled(tmp_path, capsys):
    path = tmp_path / "dag.py"
    path.write_text("x = 1")

    assert main(["compile", str(path)]) == 1
    assert "not-one-job" in capsys.readouterr().err
