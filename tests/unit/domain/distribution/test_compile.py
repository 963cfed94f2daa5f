"""The request beyond the recorded ones: where code and output go, what stays reachable, what is refused."""

import json

import pytest

from airflow_smd.aws.containers import installed_catalogue
from airflow_smd.domain.distribution import Job, compile_job, conventional_uris
from airflow_smd.errors import InvalidInput

KWARGS = {
    "role": "arn:aws:iam::123456789012:role/SageMakerRole",
    "entry_point": "train.py",
    "source_dir": "src",
    "framework_version": "2.2.0",
    "py_version": "py310",
    "instance_type": "ml.p4d.24xlarge",
    "instance_count": 2,
    "distribution": {"torch_distributed": {"enabled": True}},
}


def job(estimator="PyTorch", fit=None, **changes):
    kwargs = {key: value for key, value in {**KWARGS, **changes}.items() if value is not None}
    return Job.parse({"estimator": estimator, "region": "us-west-2", "kwargs": kwargs, "fit": fit})


def compiled(one, **settings):
    source, output = conventional_uris(one, "smd-1")
    given = {"name": "smd-1", "source_uri": source, "output_uri": output, **settings}
    return compile_job(one, installed_catalogue(), **given)


def hyperparameter(request, name):
    return json.loads(request["HyperParameters"][name])


@pytest.mark.parametrize(
    ("changes", "code", "output"),
    [
        pytest.param(
            {},
            "s3://sagemaker-us-west-2-123456789012/smd-1/source/sourcedir.tar.gz",
            "s3://sagemaker-us-west-2-123456789012/",
            id="the SDK's bucket",
        ),
        pytest.param(
            {"output_path": "s3://mine/out"},
            "s3://mine/smd-1/source/sourcedir.tar.gz",
            "s3://mine/out",
            id="beside the output",
        ),
        pytest.param(
            {"code_location": "s3://code/pre/"},
            "s3://code/pre/smd-1/source/sourcedir.tar.gz",
            "s3://sagemaker-us-west-2-123456789012/",
            id="where the code is told to go",
        ),
        pytest.param(
            {"source_dir": "s3://code/ready.tar.gz"},
            "s3://code/ready.tar.gz",
            "s3://sagemaker-us-west-2-123456789012/",
            id="on S3 already",
        ),
    ],
)
def test_code_and_output_go_where_the_sdk_puts_them(changes, code, output):
    request = compiled(job(**changes))

    assert hyperparameter(request, "sagemaker_submit_directory") == code
    assert request["OutputDataConfig"] == {"S3OutputPath": output}


def test_a_script_without_a_folder_is_named_by_its_last_part():
    assert (
        hyperparameter(compiled(job(source_dir=None, entry_point="a/b/train.py")), "sagemaker_program")
        == "train.py"
    )


@pytest.mark.parametrize(
    ("model_dir", "expected"),
    [
        pytest.param("s3://mine/model", "s3://mine/model", id="one's own"),
        pytest.param(None, "s3://sagemaker-us-west-2-123456789012/smd-1/model", id="the SDK's"),
        pytest.param(False, None, id="none wanted"),
    ],
)
def test_tensorflow_gets_a_model_directory(model_dir, expected):
    one = job(
        "TensorFlow",
        framework_version="2.11.0",
        py_version="py39",
        distribution=None,
        instance_count=1,
        model_dir=model_dir,
    )

    found = compiled(one)["HyperParameters"].get("model_dir")

    assert found == (None if expected is None else json.dumps(expected))


def test_the_generic_estimator_writes_plain_text():
    one = job(
        "Estimator",
        framework_version=None,
        py_version=None,
        distribution=None,
        entry_point=None,
        source_dir=None,
        image_uri="1.dkr.ecr.us-west-2.amazonaws.com/mine:1",
        hyperparameters={"lr": 0.1, "name": "x"},
    )

    assert compiled(one)["HyperParameters"] == {"lr": "0.1", "name": "x"}


def test_every_other_argument_reaches_its_field():
    request = compiled(
        job(
            tags={"team": "ml"},
            subnets=["subnet-1"],
            security_group_ids=["sg-1"],
            encrypt_inter_container_traffic=True,
            disable_output_compression=True,
            output_kms_key="alias/mine",
            container_entry_point=["python3"],
            container_arguments=["-m", "x"],
            enable_session_tag_chaining=True,
            training_repository_access_mode="Vpc",
            tensorboard_output_config={"s3_output_path": "s3://b/tb", "container_local_output_path": "/tb"},
            model_uri="s3://b/model.tar.gz",
            environment={"A": "1"},
        )
    )

    assert request["Tags"] == [{"Key": "team", "Value": "ml"}]
    assert request["VpcConfig"] == {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    assert request["EnableInterContainerTrafficEncryption"] is True
    assert request["OutputDataConfig"]["CompressionType"] == "NONE"
    assert request["OutputDataConfig"]["KmsKeyId"] == "alias/mine"
    assert request["AlgorithmSpecification"]["ContainerEntrypoint"] == ["python3"]
    assert request["AlgorithmSpecification"]["ContainerArguments"] == ["-m", "x"]
    assert request["AlgorithmSpecification"]["TrainingImageConfig"] == {"TrainingRepositoryAccessMode": "Vpc"}
    assert request["SessionChainingConfig"] == {"EnableSessionTagChaining": True}
    assert request["TensorBoardOutputConfig"] == {"S3OutputPath": "s3://b/tb", "LocalPath": "/tb"}
    assert request["InputDataConfig"][0]["ContentType"] == "application/x-sagemaker-model"
    assert request["Environment"] == {"A": "1"}


def test_a_lone_inputs_mode_becomes_the_jobs():
    request = compiled(job(fit={"s3_data": "s3://b/p", "input_mode": "FastFile"}))

    assert request["AlgorithmSpecification"]["TrainingInputMode"] == "FastFile"


def test_numbers_and_switches_that_a_template_rendered_as_text_are_read():
    request = compiled(job(instance_count="4", max_run="3600", enable_remote_debug="True"))

    assert request["ResourceConfig"]["InstanceCount"] == 4
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 3600}
    assert request["RemoteDebugConfig"] == {"EnableRemoteDebug": True}


def test_overrides_are_merged_last_and_null_removes():
    request = compiled(
        job(environment={"A": "1"}),
        overrides={
            "StoppingCondition": {"MaxPendingTimeInSeconds": 7200},
            "ResourceConfig": {"VolumeSizeInGB": 100},
            "Environment": None,
        },
    )

    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400, "MaxPendingTimeInSeconds": 7200}
    assert (request["ResourceConfig"]["VolumeSizeInGB"], request["ResourceConfig"]["InstanceCount"]) == (
        100,
        2,
    )
    assert "Environment" not in request


@pytest.mark.parametrize(
    ("overrides", "field", "remedy"),
    [
        pytest.param({"StopingCondition": {}}, "StopingCondition", "StoppingCondition", id="at the top"),
        pytest.param(
            {"ResourceConfig": {"VolumeSizeGB": 1}},
            "ResourceConfig.VolumeSizeGB",
            "VolumeSizeInGB",
            id="inside",
        ),
        pytest.param(
            {"AlgorithmSpecification": {"TrainingInputMode": "FastFil"}},
            "AlgorithmSpecification.TrainingInputMode",
            "FastFile",
            id="a choice",
        ),
    ],
)
def test_a_misspelt_override_is_refused_with_a_suggestion(overrides, field, remedy):
    with pytest.raises(InvalidInput) as refused:
        compiled(job(), overrides=overrides)

    assert [(p.field, remedy in p.remedy) for p in refused.value.problems] == [(field, True)]


def test_an_instance_type_newer_than_botocore_is_no_error():
    request = compiled(job(), overrides={"ResourceConfig": {"InstanceType": "ml.p9.48xlarge"}})

    assert request["ResourceConfig"]["InstanceType"] == "ml.p9.48xlarge"


def test_a_silenced_rule_does_not_stop_the_job():
    with pytest.raises(InvalidInput):
        compiled(job(max_wait=90000))

    assert (
        compiled(job(max_wait=90000), silenced=["spot-wait"])["StoppingCondition"]["MaxWaitTimeInSeconds"]
        == 90000
    )


def test_a_channel_called_code_is_refused_where_the_code_needs_the_name():
    with pytest.raises(InvalidInput, match="duplicate-channel"):
        compiled(job(enable_network_isolation=True, fit={"code": "s3://b/c"}))


def test_a_raw_request_keeps_all_its_fields_under_the_new_name():
    raw = compiled(job(), overrides={"InfraCheckConfig": {"EnableInfraCheck": True}})

    again = compile_job(
        Job.parse(raw), installed_catalogue(), name="other-2", source_uri="s3://b/c", output_uri="s3://b/"
    )

    assert again["HyperParameters"].pop("sagemaker_job_name") == '"other-2"'
    assert raw["HyperParameters"].pop("sagemaker_job_name") == '"smd-1"'
    assert {**raw, "TrainingJobName": "other-2"} == again


def test_a_recipe_compiles_when_its_script_and_hosts_are_given():
    one = job(
        training_recipe="recipes/llama.yaml", distribution=None, framework_version=None, py_version=None
    )

    request = compiled(one)

    assert request["AlgorithmSpecification"]["TrainingImage"] == (
        "658645717510.dkr.ecr.us-west-2.amazonaws.com/smdistributed-modelparallel:2.4.1-gpu-py311-cu121"
    )
    assert hyperparameter(request, "mp_parameters") == {"placement_strategy": "cluster"}
    assert hyperparameter(request, "config-name") == "llama.yaml"
    assert hyperparameter(request, "sagemaker_torch_distributed_enabled") is True


def test_a_recipe_without_its_script_says_what_is_missing():
    with pytest.raises(InvalidInput) as refused:
        compiled(job(training_recipe="llama.yaml", entry_point=None, instance_count=None, distribution=None))

    assert {problem.field for problem in refused.value.problems} == {"entry_point", "instance_count"}


def test_a_fallback_type_changes_the_launch_with_it():
    one = job().but(instance_type="ml.p5.48xlarge", instance_count=1)

    assert (one.world_size, one.processes_per_host) == (8, 8)
    assert hyperparameter(compiled(one), "sagemaker_instance_type") == "ml.p5.48xlarge"


def test_hugging_face_keeps_the_smp2_parameters_that_the_sdk_loses():
    one = job(
        "HuggingFace",
        framework_version=None,
        py_version=None,
        image_uri="658645717510.dkr.ecr.us-west-2.amazonaws.com/smdistributed-modelparallel:2.3.1-gpu-py311-cu121",
        distribution={
            "torch_distributed": {"enabled": True},
            "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"hybrid_shard_degree": 16}}},
        },
    )

    assert hyperparameter(compiled(one), "mp_parameters") == {"hybrid_shard_degree": 16}
