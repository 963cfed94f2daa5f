from __future__ import annotations

from typing import Any

import botocore.session
import pytest

from airflow_smd.sandbox.validate import SERVICES, WrongType, _compiled, complaint

FILE_SYSTEM = {"FileSystemType": "LUSTRE", "SubnetIds": ["subnet-0123456789abcdef0"], "StorageCapacity": 1200}
HYPER_PARAMETERS = (
    "Value at 'hyperParameters' failed to satisfy constraint: Map value must satisfy constraint: "
    "[Member must have length less than or equal to 2500"
)


def training_job(**changes: Any) -> dict[str, Any]:
    request = {
        "TrainingJobName": "mnist-1",
        "RoleArn": "arn:aws:iam::123456789012:role/SageMakerRole",
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }
    return {**request, **changes}


def test_sound_request_may_pass() -> None:
    assert complaint("sagemaker", "CreateTrainingJob", training_job()) is None


def test_operation_that_the_model_does_not_know_may_pass() -> None:
    assert complaint("sagemaker", "CreateDream", {"Anything": 1}) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            {"RoleArn": None},
            "1 validation error detected: Value null at 'roleArn' failed to satisfy constraint: "
            "Member must not be null",
            id="a required member is missing",
        ),
        pytest.param(
            {"ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": -1, "VolumeSizeInGB": 1}},
            "Value '-1' at 'resourceConfig.instanceCount' failed to satisfy constraint: "
            "Member must have value greater than or equal to 0",
            id="a number is too small",
        ),
        pytest.param(
            {"RoleArn": "arn:aws:iam::123456789012:role/" + "a" * 2048},
            "at 'roleArn' failed to satisfy constraint: Member must have length less than or equal to 2048",
            id="a text is too long",
        ),
        pytest.param(
            {"TrainingJobName": "mnist 1"},
            "Value 'mnist 1' at 'trainingJobName' failed to satisfy constraint: "
            "Member must satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}",
            id="a text has another pattern",
        ),
        pytest.param(
            {"TrainingJobName": "mnist-1\n"},
            "Member must satisfy regular expression pattern",
            id="a text ends with a line break",
        ),
        pytest.param(
            {"Tags": [{"Key": "team", "Value": "vision"}, {"Key": "", "Value": "x"}]},
            "Value '' at 'tags.2.member.key' failed to satisfy constraint: "
            "Member must have length greater than or equal to 1",
            id="an item of a list is wrong",
        ),
        pytest.param(
            {"HyperParameters": {"a": "x" * 2501, "b": "y" * 2501}},
            HYPER_PARAMETERS,
            id="values of a map are too long, told once",
        ),
        pytest.param(
            {"StopingCondition": {}},
            "'stopingCondition' failed to satisfy constraint: Member must be one of [TrainingJobName, ",
            id="a member is misspelt",
        ),
    ],
)
def test_violation_is_told_in_the_words_of_aws(changes: dict[str, Any], words: str) -> None:
    message = complaint("sagemaker", "CreateTrainingJob", training_job(**changes))

    assert message is not None
    assert message.startswith("1 validation error detected: ")
    assert words in message


def test_all_violations_are_counted_and_listed() -> None:
    message = complaint("fsx", "CreateFileSystem", {"FileSystemType": "FAT", "SubnetIds": []})

    assert message is not None
    assert message.startswith("1 validation error detected: Value 'FAT' at 'fileSystemType'")
    message = complaint("fsx", "CreateFileSystem", {"StorageCapacity": -1})
    assert message is not None
    assert message.startswith("3 validation errors detected: Value null at 'fileSystemType'")
    assert message.count("; Value ") == 2


def test_secret_value_is_not_repeated() -> None:
    windows = {"SelfManagedActiveDirectoryConfiguration": {"Password": "x" * 300}, "ThroughputCapacity": 8}
    message = complaint("fsx", "CreateFileSystem", {**FILE_SYSTEM, "WindowsConfiguration": windows})

    assert message is not None
    assert "xxx" not in message
    assert (
        "Value at 'windowsConfiguration.selfManagedActiveDirectoryConfiguration.password' failed" in message
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"StorageCapacity": "1200"}, "STRING_VALUE can not be converted", id="text"),
        pytest.param({"StorageCapacity": True}, "BOOLEAN_VALUE can not be", id="boolean"),
        pytest.param({"FileSystemType": 1}, "NUMBER_VALUE can not be", id="number"),
        pytest.param({"SubnetIds": "subnet-1"}, "Expected list or null", id="text for a list"),
        pytest.param({"LustreConfiguration": []}, "structure or map expected", id="list"),
    ],
)
def test_value_of_another_json_type_cannot_be_read(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(WrongType, match=words):
        complaint("fsx", "CreateFileSystem", {**FILE_SYSTEM, **changes})


def test_nearly_all_patterns_of_the_models_can_be_checked() -> None:
    models = map(botocore.session.get_session().get_service_model, SERVICES)
    patterns = {
        shape.metadata["pattern"]
        for model in models
        for shape in map(model.shape_for, model.shape_names)
        if "pattern" in shape.metadata
    }

    unreadable = {pattern for pattern in patterns if _compiled(pattern) is None}
    assert len(unreadable) < len(patterns) / 50
