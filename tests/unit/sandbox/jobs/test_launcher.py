"""The launcher as a program: what it reads, how it starts the script, what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_smd.sandbox.jobs import launcher
from airflow_smd.sandbox.jobs.layout import Layout, write_training
from airflow_smd.sandbox.jobs.machines import training_machines


def write(
    path: Path, script: str, hosts: int = 1, instance_type: str = "ml.m5.large", **hyperparameters: Any
) -> Path:
    """Lay out /opt/ml of the first host with a script as its code; return it."""
    request = {
        "AlgorithmSpecification": {"TrainingInputMode": "File"},
        "HyperParameters": {"sagemaker_program": '"train.py"', **hyperparameters},
        "InputDataConfig": [{"ChannelName": "training", "DataSource": {"S3DataSource": {}}}],
    }
    machines = training_machines({"InstanceType": instance_type, "InstanceCount": hosts})
    layout = Layout(path)
    write_training(layout, request, machines[0], machines)
    (layout.ml / "code" / "train.py").write_text(script)
    return layout.ml


def launch(ml: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": os.environ["PATH"], "SAGEMAKER_BASE_DIR": str(ml), **environment}
    return subprocess.run(
        [sys.executable, launcher.__file__], env=variables, capture_output=True, text=True, check=False
    )


def test_hyperparameters_become_arguments_as_the_toolkit_writes_them(tmp_path: Path) -> None:
    ml = write(
        tmp_path,
        "import sys; print(sys.argv[1:])",
        lr="0.1",
        name='"two words"',
        e="5",
        flag="true",
        plain="text",
        map='{"a": 1}',
    )

    result = launch(ml)

    assert result.stdout.strip() == str(
        ["-e", "5", "--flag", "True", "--lr", "0.1", "--map", "a=1", "--name", "two words", "--plain", "text"]
    )
    assert (ml / "output" / "success").exists()


def test_script_finds_its_job_in_the_environment(tmp_path: Path) -> None:
    ml = write(
        tmp_path,
        "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('SM_')}))",
        hosts=2,
        lr="0.1",
    )

    found = json.loads(launch(ml, SMD_SANDBOX_GPUS="8").stdout)

    assert found["SM_CHANNEL_TRAINING"] == f"{ml}/input/data/training"
    assert (found["SM_MODEL_DIR"], found["SM_OUTPUT_DATA_DIR"]) == (f"{ml}/model", f"{ml}/output/data")
    assert (json.loads(found["SM_HOSTS"]), found["SM_CURRENT_HOST"]) == (["algo-1", "algo-2"], "algo-1")
    assert (found["SM_NUM_GPUS"], found["SM_HP_LR"], json.loads(found["SM_HPS"])) == ("8", "0.1", {"lr": 0.1})
    assert json.loads(found["SM_TRAINING_ENV"])["hyperparameters"] == {"lr": 0.1}
    assert json.loads(found["SM_USER_ARGS"]) == ["--lr", "0.1"]


def test_one_failing_rank_ends_the_others_and_gives_the_reason(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit('rank one gave up')\ntime.sleep(300)"
    )
    ml = write(tmp_path, script, sagemaker_mpi_enabled="true", sagemaker_mpi_num_of_processes_per_host="3")

    result = launch(ml)

    assert result.returncode == 1
    assert "[1,mpirank:1,algo-1]<stderr>:rank one gave up" in result.stdout
    failure = (ml / "output" / "failure").read_text()
    assert failure.startswith("ExecuteUserScriptError:\nExitCode 1\nErrorMessage")
    assert "rank one gave up" in failure
    assert not (ml / "output" / "success").exists()


def test_one_process_per_gpu_unless_told_otherwise(tmp_path: Path) -> None:
    ml = write(
        tmp_path,
        "import os; print(*(os.environ[name] for name in ('LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'WORLD_SIZE')))",
        hosts=2,
        sagemaker_distributed_dataparallel_enabled="true",
    )

    lines = launch(ml, SMD_SANDBOX_GPUS="4").stdout.splitlines()

    assert sorted(line.partition("<stdout>:")[2] for line in lines) == [f"{rank} 4 8" for rank in range(4)]


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        pytest.param({"sagemaker_program": "null"}, "Nothing to run", id="no program"),
        pytest.param(
            {"sagemaker_program": '"other.py"'}, "'other.py' is not in", id="a program that is not there"
        ),
    ],
)
def test_job_without_code_says_what_is_missing(
    tmp_path: Path, hyperparameters: dict[str, str], message: str
) -> None:
    ml = write(tmp_path, "", **hyperparameters)

    assert launch(ml).returncode == 1
    assert message in (ml / "output" / "failure").read_text()


@pytest.mark.parametrize(
    ("flags", "runner"),
    [
        pytest.param({}, "process", id="none"),
        pytest.param({"sagemaker_torch_distributed_enabled": "true"}, "torchrun", id="torch_distributed"),
        pytest.param(
            {"sagemaker_torch_distributed_enabled": "true", "sagemaker_mpi_enabled": "true"},
            "ranks",
            id="mpi wins",
        ),
        pytest.param(
            {
                "sagemaker_torch_distributed_enabled": "true",
                "sagemaker_distributed_dataparallel_enabled": "true",
            },
            "torchrun",
            id="torch_distributed wins over SMDDP",
        ),
        pytest.param({"sagemaker_mpi_enabled": '"true"'}, "process", id="a text is not a flag"),
        pytest.param(
            {"sagemaker_mpi_enabled": "true", "sagemaker_distribution_instance_groups": '["other"]'},
            "process",
            id="another instance group",
        ),
    ],
)
def test_runner_follows_the_order_of_awss_containers(
    tmp_path: Path, flags: dict[str, str], runner: str
) -> None:
    ml = write(tmp_path, "", **flags)

    assert launcher.read_environment(ml).runner == runner


def test_torchrun_joins_the_hosts_of_a_job(tmp_path: Path) -> None:
    env = launcher.read_environment(write(tmp_path, "", hosts=2, sagemaker_mpi_num_of_processes_per_host="2"))

    command = launcher.torchrun_command(env, "train.py", "algo-1", "7777")

    expected = "--nnodes 2 --nproc_per_node 2 --master_addr algo-1 --master_port 7777 --node_rank 0 train.py"
    assert " ".join(command[3:]) == expected
