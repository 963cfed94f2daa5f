"""airflow-smd lint: files of every kind in, a table or JSON out, 1 on errors."""

import json

import pytest

from airflow_smd.cli import main

BAD = {"torchdistributed": {"enabled": True}}
GOOD = {"torch_distributed": {"enabled": True}}


@pytest.fixture
def write(tmp_path):
    def file(name, content):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return file


def test_a_right_file_ends_with_0_and_no_problem(write, capsys):
    assert main(["lint", write("job.json", GOOD)]) == 0
    assert capsys.readouterr().out.strip() == "1 job found: 0 errors, 0 warnings, 0 notes"


def test_json_has_the_six_fields(write, capsys):
    assert main(["lint", write("job.json", BAD), "--json"]) == 1

    [problem, *_] = json.loads(capsys.readouterr().out)["problems"]

    assert set(problem) == {"severity", "rule", "field", "value", "message", "remedy"}
    assert (problem["severity"], problem["rule"]) == ("error", "unknown-distribution-key")
    assert "torch_distributed" in problem["remedy"]


def test_yaml_is_read_as_json_is(write, capsys):
    text = "estimator: PyTorch\nkwargs:\n  instance_type: ml.c5.2xlarge\n  framework_version: 2.2\n"

    assert main(["lint", write("job.yaml", text), "--json"]) == 1
    assert "argument-type" in capsys.readouterr().out  # 2.2 is a number in YAML


def test_an_ignored_rule_is_silent(write):
    path = write("job.json", BAD)

    assert main(["lint", path, "--ignore", "unknown-distribution-key"]) == 0


def test_the_table_tells_value_remedy_and_place(write, capsys):
    path = write("job.json", BAD)

    main(["lint", path])

    out = capsys.readouterr().out
    assert "torchdistributed" in out
    assert "Did you mean torch_distributed?" in out
    assert path in out


def test_notes_are_shown_on_request(write, capsys):
    data = {"kwargs": {"instance_type": "ml.g5.12xlarge", "instance_count": 2, "distribution": GOOD}}
    path = write("job.json", data)

    main(["lint", path])
    quiet = capsys.readouterr().out
    main(["lint", path, "--notes"])

    assert "learning-rate-warmup" not in quiet
    assert "learning-rate-warmup" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("job.json", "{", id="broken JSON"),
        pytest.param("job.yaml", "a: [", id="broken YAML"),
        pytest.param("dag.py", "def (", id="broken Python"),
    ],
)
def test_an_unreadable_file_is_one_clear_problem(write, capsys, name, content):
    assert main(["lint", write(name, content), "--json"]) == 1

    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert problem["rule"] == "unreadable-file"


def test_a_missing_file_is_one_clear_problem(tmp_path, capsys):
    assert main(["lint", str(tmp_path / "none.json"), "--json"]) == 1
    assert "unreadable-file" in capsys.readouterr().out


PYTHON = """
from sagemaker.pytorch import PyTorch
role = get_execution_role()
smp_options = {"enabled": True, "parameters": {"pipeline_parallel_degree": 2, "ddp": True}}
mpi_options = {"enabled": True, "process_per_host": 8}
estimator = PyTorch(
    entry_point="train.py", role=role, instance_count=1, instance_type="ml.p3.16xlarge",
    framework_version="1.13.1", py_version="py38",
    distribution={"smdistributed": {"modelparallel": smp_options}, "mpi": mpi_options},
)
"""


def test_a_notebooks_estimator_is_read_through_its_names(write, capsys):
    assert main(["lint", write("train.py", PYTHON), "--json"]) == 1

    rules = {p["rule"] for p in json.loads(capsys.readouterr().out)["problems"] if p["severity"] == "error"}
    assert rules == {"unknown-strategy-key", "python-version"}


def test_python_is_read_and_never_run(write, capsys):
    assert main(["lint", write("dag.py", "raise SystemExit('ran')\nx = " + repr(BAD)), "--json"]) == 1
    assert "unknown-distribution-key" in capsys.readouterr().out


def test_a_dictionary_alone_is_found(write, capsys):
    text = 'distribution = {"smdistributed": {"dataparallel": {"enabled": "False"}}}'

    assert main(["lint", write("dag.py", text), "--json"]) == 1
    assert "enabled-not-boolean" in capsys.readouterr().out


def test_this_packages_operator_is_found_and_templates_are_left_alone(write, capsys):
    text = """
JOB = {"instance_type": "{{ params.type }}", "instance_count": 2, "framework_version": "2.4.0",
       "py_version": "py311", "distribution": {"torch_distributed": {"enabled": "{{ params.on }}"}}}
SageMakerDistributedTrainingOperator(task_id="train", job=JOB, max_active_tis_per_dag=1)
TrainingInput("s3://b/p", distribution="ShardedByS3Key")
"""

    assert main(["lint", write("dag.py", text)]) == 0
    assert "1 job found: 0 errors" in capsys.readouterr().out


def test_half_a_surrogate_pair_is_printed(write, capsys):
    assert main(["lint", write("job.json", '{"torch\\ud800distributed": {"enabled": true}}')]) == 1
    assert "ud800" in capsys.readouterr().out


def test_a_name_that_stands_for_itself_ends(write):
    text = "x = {'mpi': x, 'b': x}\ny = z\nz = y\nPyTorch(distribution=x, hyperparameters=y)"

    assert main(["lint", write("train.py", text)]) in (0, 1)


def test_notes_are_in_json_on_request_only(write, capsys):
    data = {"kwargs": {"instance_type": "ml.g5.12xlarge", "instance_count": 2, "distribution": GOOD}}
    path = write("job.json", data)

    def notes(*more):
        main(["lint", path, "--json", *more])
        return [p for p in json.loads(capsys.readouterr().out)["problems"] if p["severity"] == "note"]

    assert notes() == []
    assert notes("--notes")


def test_spread_arguments_leave_no_false_alarm(write):
    text = 'PyTorch(distribution={"mpi": {"enabled": True}}, use_spot_instances=True, **more)'

    assert main(["lint", write("train.py", text)]) == 0
