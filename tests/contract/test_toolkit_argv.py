"""Our requests, given to AWS's training toolkit: each host starts what was recorded, to the last argument."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import airflow_smd
from airflow_smd.aws.containers import installed_catalogue
from airflow_smd.domain.distribution import Job, compile_job, conventional_uris, lint
from airflow_smd.errors import Severity
from airflow_smd.sandbox.jobs.layout import Layout, training_resources, write_training
from airflow_smd.sandbox.jobs.machines import facts, training_machines

GOLDENS = Path(__file__).parents[1] / "goldens"
NVIDIA_SMI = Path(airflow_smd.__file__).parent / "sandbox" / "jobs" / "stand_ins" / "bin" / "nvidia-smi"
PYTHON = os.environ.get("SMD_CONTAINER_PYTHON", "")
"""A Python with sagemaker-training 5.1.4 and the toolkits of PyTorch 3.0.0 and TensorFlow 20.5.0 (.ci)."""
pytestmark = pytest.mark.skipif(not PYTHON, reason="SMD_CONTAINER_PYTHON names no Python with AWS's toolkit")

RECORDED = {
    golden["name"]: golden
    for line in (GOLDENS / "requests.jsonl").read_text("utf-8").splitlines()
    for golden in [json.loads(line)]
}
STARTED = {
    golden["name"]: golden
    for path in sorted((GOLDENS / "containers").glob("*.json"))
    for golden in [json.loads(path.read_text("utf-8").replace("<TIMESTAMP>", "T"))]
}
"""What the hosts of each accepted job start: the first, the second and the last one."""
COMPILED_FROM_ITS_REQUEST = {"recipe_smpv2_llama_p5"}
"""The recipe's file was not recorded, only what SDK v2 made of it."""
NOT_COMPILED = {
    "seed_generic_estimator_image_uri": "its modelparallel stands a level too high; only its mpi can be sent",
    "smpv1_parameters_from_file": "its file of parameters was not recorded",
    "trn1_torchrun_pt1131": "there is no image of that version",
}
"""Wrong jobs that AWS's client sends, and we could not even if the rules were silenced."""
NEVER_STARTED = "mpi_custom_options_hostfile"
SDK_DIES = "smpv1_default_partition_with_ppdegree_keyerror"
FORGOTTEN = "seed_generic_estimator_image_uri_nested_modelparallel"
STARTS_LIKE = {
    # SDK v2 drops the groups, so that the CPU host trains too, in a world of its own
    ("hetero_torch_distributed_drops_groups", "algo-3"): ("hetero_smddp", "algo-3"),
    # SDK v2 sends mpi as well, and mpirun then takes the place of the torchrun that SMP v2 needs
    ("smpv2_with_mpi_key", "algo-1"): ("smpv2_pt251_p4d", "algo-1"),
    ("smpv2_with_mpi_key", "algo-2"): ("smpv2_pt251_p4d", "algo-2"),
}
"""Where AWS's client is wrong and we are right: the job and host whose start ours equals instead."""
LIBRARIES = {
    "seed_smddp_custom_mpi_pt1131": ("<PYTHON>", "smddprun <PYTHON>"),
    "seed_smddp_custom_mpi_tf2110": ("<PYTHON>", "smddprun <PYTHON>"),
    "seed_pt1131_smpv1_py39_corrected": ("<PYTHON>", "smddpmprun -i ml.p3.16xlarge --allow-bypass <PYTHON>"),
    "smpv1_sharded_data_parallel": ("<PYTHON>", "smddpmprun -i ml.p4d.24xlarge --allow-bypass <PYTHON>"),
    "smpv2_pt251_p4d": ("torchrun", "torchrun"),
}
"""What is started instead in AWS's images, which hold the libraries that the recording was made without."""
MODULES = {
    "PyTorch": "sagemaker_pytorch_container.training:main",
    "TensorFlow": "sagemaker_tensorflow_container.training:main",
    "Estimator": "",
}
"""SAGEMAKER_TRAINING_MODULE in an estimator's image; an image of one's own has no framework's toolkit."""
TORCH_OF_OTHER_IMAGES = "2.2.0"
"""The PyTorch that the recording took to be in an image that does not say so."""


def _job(name):
    return Job.parse(RECORDED[name]["request" if name in COMPILED_FROM_ITS_REQUEST else "inputs"])


def _errors(name):
    found = lint(_job(name), installed_catalogue())
    return tuple({problem.rule for problem in found if problem.severity is Severity.ERROR})


RIGHT = [name for name in STARTED if not _errors(name)]
SILENCED = [name for name in STARTED if name not in {*RIGHT, *NOT_COMPILED, NEVER_STARTED, FORGOTTEN}]


def _compiled(name):
    """Return our request; a wrong job's with its rules silenced."""
    source, output = conventional_uris(_job(name), "smd-T")
    return compile_job(
        _job(name),
        installed_catalogue(),
        name="smd-T",
        source_uri=source,
        output_uri=output,
        silenced=_errors(name),
    )


def _case(directory, programs, name, request, number):
    """Return one host as the driver takes it; its files are the sandbox's."""
    machines = training_machines(request["ResourceConfig"])
    machine, layout = machines[number], Layout(directory)
    # a map has no order; that of the recording is by name
    sent = {**request, "HyperParameters": dict(sorted(request["HyperParameters"].items()))}
    write_training(layout, sent, machine, machines)
    (layout.ml / "code" / json.loads(request["HyperParameters"]["sagemaker_program"])).touch()

    image = request["AlgorithmSpecification"]["TrainingImage"]
    version = re.search(r":(\d+\.\d+\.\d+)-", image)
    framework = RECORDED[name]["inputs"]["estimator"]
    if framework == "HuggingFace":
        framework = "TensorFlow" if "-tensorflow-" in image else "PyTorch"
    module = MODULES[framework]
    return {
        "ml": str(layout.ml),
        "torch": version[1] if version else TORCH_OF_OTHER_IMAGES,
        "variables": {
            "PATH": f"{programs}:/usr/bin:/bin",
            "SMD_SANDBOX_GPUS": str(facts(machine.instance_type)["gpus"]),
            "NEURON_CORES": str(facts(machine.instance_type)["neuron_cores"]),
            **({"SAGEMAKER_TRAINING_MODULE": module} if module else {}),
        },
    }


def _programs(directory, *libraries):
    directory.mkdir()
    (directory / "nvidia-smi").symlink_to(NVIDIA_SMI)
    scripts = {
        "neuron-ls": """printf '[{"nc_count": %s}]' "$NEURON_CORES" """,
        **dict.fromkeys(libraries, ""),
    }
    for name, script in scripts.items():
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Ask AWS's toolkit once about all hosts of all jobs, and return its answers by job, host and image."""
    home = tmp_path_factory.mktemp("toolkit")
    bare = _programs(home / "bare")
    full = _programs(home / "full", "smddprun", "smddpmprun")
    wanted = [(name, host["host"], bare) for name in STARTED for host in STARTED[name]["per_host"]]
    wanted += [(name, "algo-1", full) for name in LIBRARIES] + [(SDK_DIES, "algo-1", bare)]
    requests = {name: _compiled(name) for name, *_ in wanted if name not in NOT_COMPILED}
    cases = {
        (name, host, programs.name): _case(
            home / name / f"{host}-{programs.name}", programs, name, requests[name], int(host[5:]) - 1
        )
        for name, host, programs in wanted
        if name in requests
    }
    (home / "cases.json").write_text(json.dumps(list(cases.values())))
    driver = Path(__file__).with_name("toolkit_driver.py")
    done = subprocess.run(
        [PYTHON, driver, home / "cases.json", home / "answers.json"],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(cases, json.loads((home / "answers.json").read_text()), strict=True))


def _answer(answers, name, host, programs="bare"):
    """Return what the toolkit starts, spelled as in the recording."""
    found = answers[name, host, programs]
    if "No module named 'sagemaker_tensorflow_container'" in found.get("error", ""):
        pytest.skip("SMD_CONTAINER_PYTHON has no sagemaker-tensorflow-training")
    return {**found, "cmd": found["cmd"] and [_spelled(word) for word in found["cmd"]]}


def _spelled(word):
    if re.fullmatch(r"LD_PRELOAD=.*/gethostname\.\S+\.so", word):
        return "LD_PRELOAD=<GETHOSTNAME_SO>"
    return "<PYTHON>" if word == PYTHON else word


def _recorded(name, host):
    """Return what the recording starts on a host."""
    (start,) = (one for one in STARTED[name]["per_host"] if one["host"] == host)
    command = start["cmd"]
    if start["class"] == "sagemaker_training.mpi.MasterRunner":
        # the recording asked the runner itself; `train` exports the path of Python's modules to it before
        last = max(at for at, word in enumerate(command) if word.startswith("SM_"))
        command = [*command[: last + 1], "-x", "PYTHONPATH", *command[last + 1 :]]
    kept = {key: start[key] for key in ("class", "capture_error", "TF_CONFIG", "ps_cluster") if key in start}
    return kept | {"cmd": command, "env_added": start.get("env_added", {})}


def _expected(name, host):
    return _recorded(*STARTS_LIKE.get((name, host), (name, host)))


def _edited(start, old, new):
    """Return a start with words of its command, which must be there, replaced."""
    words, length = start["cmd"], len(old.split())
    (at,) = (at for at in range(len(words)) if words[at : at + length] == old.split())
    return {**start, "cmd": [*words[:at], *new.split(), *words[at + length :]]}


@pytest.mark.parametrize("name", [name for name in STARTED if name not in NOT_COMPILED])
def test_a_job_has_the_recorded_hosts_with_the_recorded_accelerators(name):
    golden, machines = STARTED[name], training_machines(_compiled(name)["ResourceConfig"])
    resources = training_resources(machines[0], machines)

    assert (resources["hosts"], resources["instance_groups"]) == (golden["hosts"], golden["groups"])
    for host in golden["per_host"]:
        row = facts(host["instance_type"])
        assert (row["gpus"], row["neuron_cores"]) == (host["gpus"], host["neuron_cores"])


@pytest.mark.parametrize("name", RIGHT)
def test_each_host_of_a_right_job_starts_what_was_recorded(answers, name):
    for host in (one["host"] for one in STARTED[name]["per_host"]):
        assert _answer(answers, name, host) == _expected(name, host)


@pytest.mark.parametrize("name", SILENCED)
def test_each_host_of_a_wrong_job_starts_what_was_recorded_once_its_rules_are_silenced(answers, name):
    for host in (one["host"] for one in STARTED[name]["per_host"]):
        assert _answer(answers, name, host) == _expected(name, host)


def test_an_mpi_option_that_looks_like_help_ends_the_job_as_completed_without_a_start(answers):
    found = answers[NEVER_STARTED, "algo-1", "bare"]

    assert found == {"class": "sagemaker_training.mpi.MasterRunner", "error": "exit 0"}


@pytest.mark.parametrize("name", LIBRARIES)
def test_an_image_with_the_closed_libraries_starts_their_launcher(answers, name):
    expected = _edited(_recorded(name, "algo-1"), *LIBRARIES[name])

    assert _answer(answers, name, "algo-1", "full") == expected


def test_a_generic_estimator_starts_the_distribution_that_the_sdk_forgets(answers):
    expected = _recorded("seed_pytorch_image_uri_smpv1", "algo-1")
    # without PyTorch's toolkit nobody tells PyTorch's version, or catches what the script says in error
    expected = _edited(expected, "-x NCCL_PROTO=simple -x NCCL_ALGO=ring", "") | {"capture_error": False}

    assert _answer(answers, FORGOTTEN, "algo-1") == expected


def test_manual_partitions_start_under_the_new_name_of_the_degree_where_the_sdk_dies(answers):
    expected = _edited(
        _recorded("smpv1_default_partition_with_partitions", "algo-1"),
        "auto_partition=False,ddp=True,default_partition=0,partitions=2",
        "auto_partition=False,ddp=True,default_partition=0,microbatches=4,optimize=speed,"
        "pipeline=interleaved,pipeline_parallel_degree=2,placement_strategy=spread",
    )

    assert _answer(answers, SDK_DIES, "algo-1") == expected
