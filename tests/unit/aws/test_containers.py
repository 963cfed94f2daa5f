"""The catalogue of the installed packages, and tables that must keep up with them."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from botocore.session import Session

from airflow_smd.aws.containers import create_training_job, installed_catalogue, snapshot_catalogue
from airflow_smd.domain.distribution import Catalogue, Job, image_of
from airflow_smd.domain.distribution.debugger import INTERVALS_MS
from airflow_smd.domain.distribution.facts import debugger_rules, supported, version_key, versions
from airflow_smd.domain.distribution.images import DNS_SUFFIXES
from airflow_smd.domain.distribution.rules.limits import KEEP_ALIVE_LIMIT_SECONDS, PENDING_LIMITS_SECONDS
from airflow_smd.errors import Problem

SPEC = importlib.util.find_spec("sagemaker")
SDK = Path(SPEC.submodule_search_locations[0]) / "core" if SPEC else Path()
needs_sdk = pytest.mark.skipif(SPEC is None, reason="the sagemaker SDK is not installed")


def image(estimator="PyTorch", region="us-west-2", **kwargs):
    return image_of(
        Job.parse({"estimator": estimator, "region": region, "kwargs": kwargs}), installed_catalogue()
    )


@pytest.mark.parametrize(
    ("kwargs", "uri"),
    [
        pytest.param(
            {"framework_version": "2.8.0", "py_version": "py312", "instance_type": "ml.p5en.48xlarge"},
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.8.0-gpu-py312",
            id="PyTorch on GPUs",
        ),
        pytest.param(
            {"framework_version": "2.2.0", "py_version": "py310", "instance_type": "ml.c5.2xlarge"},
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.2.0-cpu-py310",
            id="PyTorch on CPUs",
        ),
        pytest.param(
            {
                "framework_version": "2.2.0",
                "py_version": "py310",
                "instance_type": "ml.p4d.24xlarge",
                "region": "cn-north-1",
            },
            "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/pytorch-training:2.2.0-gpu-py310",
            id="China",
        ),
        pytest.param(
            {"framework_version": "1.11.0", "py_version": "py38", "instance_type": "ml.trn1.2xlarge"},
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training-neuron:1.11.0-neuron-py38-sdk2.4.0-ubuntu20.04",
            id="Trainium",
        ),
        pytest.param(
            {"framework_version": "1.6.0", "py_version": "py36", "instance_type": "ml.p4d.24xlarge"},
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.6.0-gpu-py36-cu110-ubuntu18.04",
            id="an old image with CUDA 11 for p4d",
        ),
        pytest.param(
            {
                "estimator": "HuggingFace",
                "transformers_version": "4.56.2",
                "pytorch_version": "2.8.0",
                "py_version": "py312",
                "instance_type": "ml.p5.48xlarge",
            },
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/"
            "huggingface-pytorch-training:2.8.0-transformers4.56.2-gpu-py312-cu129-ubuntu22.04",
            id="HuggingFace",
        ),
        pytest.param({"image_uri": "mine:1"}, "mine:1", id="one's own wins"),
    ],
)
def test_the_image_of_a_job(kwargs, uri):
    assert image(**kwargs) == uri


@needs_sdk
def test_the_sdk_agrees_on_every_pytorch_and_tensorflow_image():
    """Compared with the SDK's own function, in a process of its own: importing it takes seconds."""
    code = """
import json, sys
from sagemaker.core.image_uris import retrieve
for framework, version, python, kind in json.load(sys.stdin):
    settings = dict(version=version, py_version=python, instance_type=kind, image_scope="training")
    print(retrieve(framework, "eu-west-1", **settings))
"""
    asked = [
        (framework, version, entry["py_versions"][-1], kind)
        for framework in ("pytorch", "tensorflow")
        for version, entry in installed_catalogue().images[framework]["versions"].items()
        if "py_versions" in entry and version_key(version) >= (1, 2) and "eu-west-1" in entry["registries"]
        for kind in ("ml.p4d.24xlarge" if version < "2" else "ml.c5.xlarge",)
    ]
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(asked), capture_output=True, text=True, check=True
    )

    ours = [
        image(
            {"pytorch": "PyTorch", "tensorflow": "TensorFlow"}[framework],
            "eu-west-1",
            framework_version=version,
            py_version=python,
            instance_type=kind,
        )
        for framework, version, python, kind in asked
    ]
    assert ours == done.stdout.split()


@needs_sdk
def test_the_snapshot_is_the_installed_sdks_data():
    """Fails when the SDK is newer than the snapshot and names the frameworks that changed."""
    ours, theirs = snapshot_catalogue(), installed_catalogue()

    assert [name for name, images in theirs.images.items() if ours.images.get(name) != images] == []
    assert ours.debugger_registries == theirs.debugger_registries


def test_the_snapshot_serves_where_no_sdk_is_installed():
    job = Job.parse(
        {
            "region": "us-west-2",
            "kwargs": {
                "framework_version": "2.2.0",
                "py_version": "py310",
                "instance_type": "ml.g5.12xlarge",
            },
        }
    )

    assert image_of(job, snapshot_catalogue()) == image_of(job, installed_catalogue())


def test_a_catalogue_without_images_says_so():
    job = Job.parse(
        {"region": "us-west-2", "kwargs": {"framework_version": "2.2.0", "instance_type": "ml.g5.xlarge"}}
    )

    assert isinstance(image_of(job, Catalogue()), Problem)


def test_reading_the_catalogue_imports_no_sagemaker():
    code = (
        "import sys; from airflow_smd.aws.containers import installed_catalogue; installed_catalogue();"
        "print('sagemaker' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_the_request_shape_is_botocores():
    shape, model = create_training_job(), Session().get_service_model("sagemaker")
    theirs = model.operation_model("CreateTrainingJob").input_shape

    assert set(shape.members) == set(theirs.members)
    assert shape.required == tuple(theirs.required_members)
    assert shape.members["HyperParameters"].element.maximum == 2500


def test_limits_in_rules_are_the_apis():
    stopping = create_training_job().members["StoppingCondition"].members["MaxPendingTimeInSeconds"]
    resources = create_training_job().members["ResourceConfig"].members["KeepAlivePeriodInSeconds"]

    assert (stopping.minimum, stopping.maximum) == PENDING_LIMITS_SECONDS
    assert resources.maximum == KEEP_ALIVE_LIMIT_SECONDS
    assert 500 in INTERVALS_MS


@pytest.mark.parametrize("strategy", ["torchrun", "smp1"])
def test_every_pytorch_version_of_the_table_has_an_image_or_is_known_to_have_none(strategy):
    """PyTorch versions that the SDK's validator lists and its image list lacks."""
    images = installed_catalogue().images["pytorch"]["versions"]

    assert set(versions("pytorch", strategy)) - set(images) <= {"2.1.2", "2.3.1", "2.4.1"}


def test_new_pytorch_images_are_named_until_the_table_has_them():
    """Fails when the SDK gets a version beyond these: check torchrun on it and extend frameworks.json."""
    newest = versions("pytorch", "torchrun")[-1]
    newer = {
        name
        for name in installed_catalogue().images["pytorch"]["versions"]
        if version_key(name) > version_key(newest)
    }

    assert newer == {"2.9.0", "2.10.0"}


@needs_sdk
def test_the_installed_sdk_lists_no_smddp_version_that_the_table_lacks():
    text = (SDK / "fw_utils.py").read_text("utf-8")
    block = text[text.index("SM_DATAPARALLEL_SUPPORTED_FRAMEWORK_VERSIONS") :]
    listed = set(re.findall(r'"(\d[\d.]*)"', block[: block.index("\n}\n")]))

    assert listed - {row.version for row in supported() if row.strategy == "smddp"} == set()


@needs_sdk
def test_debugger_rules_are_the_installed_packages():
    import smdebug_rulesconfig

    for name, fact in debugger_rules("profiler").items():
        theirs = getattr(smdebug_rulesconfig, name)().rule_parameters
        assert {key: str(value) for key, value in theirs.items()} == dict(fact.parameters)


def test_registries_use_the_partitions_own_dns():
    resolver = Session().get_component("endpoint_resolver")
    suffixes = dict(DNS_SUFFIXES)
    regions = {
        "cn-": "cn-north-1",
        "us-iso-": "us-iso-east-1",
        "us-isob-": "us-isob-east-1",
        "eusc-": "eusc-de-east-1",
    }

    found = {
        prefix: resolver.construct_endpoint("ecr", region)["dnsSuffix"] for prefix, region in regions.items()
    }

    assert found == {prefix: suffixes[prefix] for prefix in regions}
