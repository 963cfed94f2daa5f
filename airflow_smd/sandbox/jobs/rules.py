"""What AWS refuses at create and botocore's model cannot express, in AWS's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_smd.sandbox.jobs.cloud import Cloud, split_uri
from airflow_smd.sandbox.jobs.machines import facts

_MAX_RUNTIME_SECONDS = 28 * 86_400
"""Longest MaxRuntimeInSeconds of a training job (API_StoppingCondition)."""


def training_problem(cloud: Cloud, region: str, request: Mapping[str, Any]) -> str | None:
    """Return the first thing that is wrong with a CreateTrainingJob request; AWS names one too."""
    checks = (_algorithm, _resources, _stopping, _file_systems, _channels)
    for check in checks:
        for problem in check(request):
            return problem
    return role_problem(cloud, request["RoleArn"]) or _inputs_problem(cloud, region, request)


def role_problem(cloud: Cloud, arn: str) -> str | None:
    """Return AWS's complaint about a role that does not exist or does not trust SageMaker."""
    if cloud.role_trusts(arn, "sagemaker.amazonaws.com"):
        return None
    return (
        f"Could not assume role {arn}. Please ensure that the role exists and allows principal"
        " 'sagemaker.amazonaws.com' to assume the role."
    )


def processing_problem(cloud: Cloud, _region: str, request: Mapping[str, Any]) -> str | None:
    """Return the first thing that is wrong with a CreateProcessingJob request."""
    cluster = request["ProcessingResources"]["ClusterConfig"]
    if ("InstanceType" in cluster) == bool(cluster.get("InstancePreferences")):
        return "ClusterConfig must have either InstanceType and InstanceCount or InstancePreferences."
    names: set[str] = set()
    for item in request.get("ProcessingInputs") or []:
        if item["InputName"] in names:
            return f"ProcessingInputs must have unique names. Duplicate name: {item['InputName']}"
        names.add(item["InputName"])
        if ("S3Input" in item) == ("DatasetDefinition" in item):
            return (
                f"Exactly one of S3Input and DatasetDefinition must be given for input {item['InputName']}."
            )
        if (item.get("S3Input") or {}).get("S3InputMode") == "Pipe":
            return "Pipe input mode is not carried out by the sandbox. Use S3InputMode File."
        if "DatasetDefinition" in item:
            return "DatasetDefinition (Athena, Redshift) is not carried out by the sandbox."
    local = [item["S3Input"].get("LocalPath") for item in request.get("ProcessingInputs") or []]
    outputs = (request.get("ProcessingOutputConfig") or {}).get("Outputs", [])
    local += [item["S3Output"].get("LocalPath") for item in outputs if "S3Output" in item]
    for path in local:
        if path is not None and not path.startswith("/opt/ml/processing"):
            return f"LocalPath is invalid: {path}. LocalPath must be a sub-path of /opt/ml/processing"
    return role_problem(cloud, request["RoleArn"])


def _algorithm(request: Mapping[str, Any]) -> Iterator[str]:
    algorithm = request["AlgorithmSpecification"]
    if ("TrainingImage" in algorithm) == ("AlgorithmName" in algorithm):
        yield "You must specify exactly one of TrainingImage and AlgorithmName in AlgorithmSpecification."
    if "AlgorithmName" in algorithm:
        yield f"Could not find the algorithm {algorithm['AlgorithmName']}."
    if "ContainerArguments" in algorithm and "TrainingImage" not in algorithm:
        yield "ContainerArguments can only be used with TrainingImage."


def _resources(request: Mapping[str, Any]) -> Iterator[str]:
    resources = request.get("ResourceConfig")
    if not resources:
        yield "ResourceConfig is required."
        return
    if groups := resources.get("InstanceGroups"):
        yield from _instance_groups(resources, groups)
    elif not resources.get("InstanceType"):
        yield "Either InstanceType and InstanceCount or InstanceGroups must be specified in ResourceConfig."
    elif resources.get("InstanceCount", 0) < 1:
        yield "InstanceCount must be greater than or equal to 1."
    if resources.get("VolumeSizeInGB", 1) < 1:
        yield "VolumeSizeInGB must be greater than or equal to 1."
    types = [group["InstanceType"] for group in groups or []] or [resources.get("InstanceType", "")]
    if resources.get("VolumeKmsKeyId"):
        for instance_type in types:
            if facts(instance_type).get("nvme"):
                yield (
                    f"VolumeKmsKeyId is not supported for instance type {instance_type}, whose local storage"
                    " is encrypted by a hardware module."
                )
    if request.get("EnableManagedSpotTraining") and resources.get("KeepAlivePeriodInSeconds"):
        yield "KeepAlivePeriodInSeconds is not supported when EnableManagedSpotTraining is set to true."


def _instance_groups(resources: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if "InstanceType" in resources or "InstanceCount" in resources:
        yield "InstanceType and InstanceCount cannot be specified together with InstanceGroups."
    if any(group["InstanceCount"] < 1 for group in groups):
        yield "InstanceCount of every instance group must be greater than or equal to 1."
    names = [group["InstanceGroupName"] for group in groups]
    if len(set(names)) != len(names):
        yield "InstanceGroupName must be unique among the InstanceGroups."


def _stopping(request: Mapping[str, Any]) -> Iterator[str]:
    stopping = request.get("StoppingCondition")
    if not stopping:
        yield "StoppingCondition is required."
        return
    run, wait = stopping.get("MaxRuntimeInSeconds", 86_400), stopping.get("MaxWaitTimeInSeconds")
    if run > _MAX_RUNTIME_SECONDS:
        yield f"MaxRuntimeInSeconds cannot be greater than {_MAX_RUNTIME_SECONDS}."
    if request.get("EnableManagedSpotTraining"):
        if wait is None or wait < run:
            yield (
                "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to"
                " MaxRuntimeInSeconds"
            )
    elif wait is not None:
        yield (
            "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
        )


def _file_systems(request: Mapping[str, Any]) -> Iterator[str]:
    for channel in request.get("InputDataConfig") or []:
        source = channel["DataSource"].get("FileSystemDataSource")
        if source is None:
            continue
        if not request.get("VpcConfig"):
            yield "VpcConfig is required when FileSystemDataSource is specified in InputDataConfig."
        path = source["DirectoryPath"]
        if not path.startswith("/") or (source["FileSystemType"] == "FSxLustre" and not path.strip("/")):
            yield (
                f"Invalid DirectoryPath {path!r} of channel {channel['ChannelName']}. For FSxLustre it starts"
                " with the mount name of the file system, e.g. /MountName/path."
            )


def _channels(request: Mapping[str, Any]) -> Iterator[str]:
    channels = request.get("InputDataConfig") or []
    names = [channel["ChannelName"] for channel in channels]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        yield f"Channel names must be unique. Duplicate channel name: {duplicate}"
    groups = {group["InstanceGroupName"] for group in request["ResourceConfig"].get("InstanceGroups") or []}
    sources = [channel["DataSource"].get("S3DataSource") or {} for channel in channels]
    assigned = [source.get("InstanceGroupNames") for source in sources]
    if any(assigned) and not all(assigned):
        without = [name for name, its_groups in zip(names, assigned, strict=True) if not its_groups]
        yield f"Some channels have assigned instance groups, while others not: {without}"
    if unknown := {name for its_groups in assigned for name in its_groups or []} - groups:
        yield f"InstanceGroupNames {sorted(unknown)} of InputDataConfig are not among the InstanceGroups."
    modes = [
        channel.get("InputMode") or request["AlgorithmSpecification"]["TrainingInputMode"]
        for channel in channels
    ]
    for channel, mode, source in zip(channels, modes, sources, strict=True):
        if (
            sum(
                kind in channel["DataSource"]
                for kind in ("S3DataSource", "FileSystemDataSource", "DatasetSource")
            )
            != 1
        ):
            yield f"Channel {channel['ChannelName']} must have exactly one data source."
        if mode == "Pipe":
            yield "Pipe input mode is not carried out by the sandbox. Use File or FastFile."
        if (
            source.get("S3DataType") in ("AugmentedManifestFile", "Converse")
            or "DatasetSource" in channel["DataSource"]
        ):
            yield f"The data source of channel {channel['ChannelName']} is not carried out by the sandbox."
        if mode == "FastFile" and source.get("S3DataType") == "AugmentedManifestFile":
            yield "FastFile input mode does not support AugmentedManifestFile."


def _inputs_problem(cloud: Cloud, region: str, request: Mapping[str, Any]) -> str | None:
    for channel in request.get("InputDataConfig") or []:
        source = channel["DataSource"].get("S3DataSource")
        if source and not cloud.keys(source["S3Uri"]):
            return (
                f'No S3 objects found under S3 URL "{source["S3Uri"]}" given in input data source. Please'
                f" ensure that the bucket exists in the selected region ({region}), that objects exist under"
                f' that S3 prefix, and that the role "{request["RoleArn"]}" has "s3:ListBucket" permissions'
                f' on bucket "{split_uri(source["S3Uri"])[0]}".'
            )
    return None
