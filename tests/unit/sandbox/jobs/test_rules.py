"""What is refused at create, without a server."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_smd.sandbox.jobs.rules import processing_problem, training_problem


class Account:
    """Every role trusts SageMaker and every prefix has objects, unless its name says otherwise."""

    def role_trusts(self, arn: str, service: str) -> bool:
        return "Nobody" not in arn

    def keys(self, uri: str) -> list[str]:
        return [] if "missing" in uri else ["key"]


ACCOUNT: Any = Account()
S3 = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/data"}}


def training(**changes: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": "a",
        "RoleArn": "arn:aws:iam::123456789012:role/R",
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://b/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    } | changes


def processing(**changes: Any) -> dict[str, Any]:
    cluster = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30}
    return {
        "ProcessingJobName": "a",
        "RoleArn": "arn:aws:iam::123456789012:role/R",
        "ProcessingResources": {"ClusterConfig": cluster},
    } | changes


def test_sound_requests_are_accepted() -> None:
    assert training_problem(ACCOUNT, "us-east-1", training()) is None
    assert processing_problem(ACCOUNT, "us-east-1", processing()) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"ResourceConfig": None}, "ResourceConfig is required", id="no resources"),
        pytest.param({"StoppingCondition": None}, "StoppingCondition is required", id="no limit"),
        pytest.param(
            {"AlgorithmSpecification": {"TrainingInputMode": "File"}},
            "exactly one of TrainingImage",
            id="no image",
        ),
        pytest.param(
            {
                "InputDataConfig": [
                    {"ChannelName": "a", "DataSource": S3},
                    {"ChannelName": "a", "DataSource": S3},
                ]
            },
            "Duplicate channel name: a",
            id="a channel twice",
        ),
        pytest.param(
            {"InputDataConfig": [{"ChannelName": "a", "DataSource": {}}]},
            "exactly one data source",
            id="a channel without data",
        ),
        pytest.param(
            {"InputDataConfig": [{"ChannelName": "a", "DataSource": S3, "InputMode": "Pipe"}]},
            "Pipe input mode",
            id="pipe mode",
        ),
        pytest.param(
            {
                "InputDataConfig": [
                    {
                        "ChannelName": "a",
                        "DataSource": {"S3DataSource": {**S3["S3DataSource"], "InstanceGroupNames": ["x"]}},
                    },
                    {"ChannelName": "b", "DataSource": S3},
                ]
            },
            r"Some channels have assigned instance groups, while others not: \['b'\]",
            id="some channels with groups",
        ),
        pytest.param(
            {
                "EnableManagedSpotTraining": True,
                "StoppingCondition": {"MaxRuntimeInSeconds": 60},
            },
            "must be present",
            id="spot without a wait",
        ),
        pytest.param(
            {
                "VpcConfig": {"Subnets": ["s"], "SecurityGroupIds": ["g"]},
                "InputDataConfig": [
                    {
                        "ChannelName": "a",
                        "DataSource": {
                            "FileSystemDataSource": {
                                "FileSystemId": "fs-1",
                                "FileSystemType": "FSxLustre",
                                "FileSystemAccessMode": "ro",
                                "DirectoryPath": "data",
                            }
                        },
                    }
                ],
            },
            "mount name",
            id="a directory without the mount name",
        ),
    ],
)
def test_training_request_is_refused(changes: dict[str, Any], message: str) -> None:
    problem = training_problem(ACCOUNT, "us-east-1", training(**changes))

    assert problem is not None
    assert re.search(message, problem)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"ProcessingInputs": [{"InputName": "a"}]},
            "Exactly one of S3Input",
            id="an input without source",
        ),
        pytest.param(
            {
                "ProcessingOutputConfig": {
                    "Outputs": [
                        {
                            "OutputName": "a",
                            "S3Output": {
                                "S3Uri": "s3://b/x",
                                "LocalPath": "/data",
                                "S3UploadMode": "EndOfJob",
                            },
                        }
                    ]
                }
            },
            "LocalPath",
            id="a path elsewhere",
        ),
        pytest.param({"RoleArn": "arn:aws:iam::123456789012:role/Nobody"}, "Could not assume", id="no role"),
    ],
)
def test_processing_request_is_refused(changes: dict[str, Any], message: str) -> None:
    problem = processing_problem(ACCOUNT, "us-east-1", processing(**changes))

    assert problem is not None
    assert re.search(message, problem)
