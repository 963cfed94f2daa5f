"""A job as the exact CreateTrainingJob request that starts it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from airflow_smd.domain.distribution import channels as inputs
from airflow_smd.domain.distribution.debugger import debugger_fields
from airflow_smd.domain.distribution.facts import version_key
from airflow_smd.domain.distribution.images import Catalogue, image_of
from airflow_smd.domain.distribution.job import Form, Job
from airflow_smd.domain.distribution.launch import hyperparameters, some
from airflow_smd.domain.distribution.linter import lint
from airflow_smd.domain.distribution.recipes import with_recipe
from airflow_smd.domain.distribution.shapes import check, merge
from airflow_smd.errors import InvalidInput, Problem, Severity

DEFAULT_RUNTIME_SECONDS = 24 * 60 * 60
"""SDK v2's `max_run`; SDK v3 has one hour."""
DEFAULT_VOLUME_GB = 30
ISOLATED_CODE = "/opt/ml/input/data/code/sourcedir.tar.gz"
"""Where a job without network finds its code: a channel named `code`."""


def conventional_uris(job: Job, name: str) -> tuple[str, str]:
    """Return where SDK v2 puts the code and the output of a job called `name`.

    The account is the role's; the bucket is `sagemaker-<region>-<account>`. A given `output_path` or
    `code_location` decides instead, as in the SDK.
    """
    account = (job.get("role", "").split(":") + [""] * 5)[4]
    bucket = f"s3://sagemaker-{job.region}-{account}/"
    output = job.get("output_path") or bucket
    if location := job.get("code_location"):
        source = f"{location.rstrip('/')}/{name}/source/sourcedir.tar.gz"
    else:
        source = f"{'/'.join(output.split('/')[:3])}/{name}/source/sourcedir.tar.gz"
    return source, output


def compile_job(
    job: Job,
    catalogue: Catalogue,
    *,
    name: str,
    source_uri: str,
    output_uri: str,
    overrides: Mapping[str, Any] | None = None,
    silenced: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the request, or raise InvalidInput with every problem; see the package's own function."""
    problems = [found for found in lint(job, catalogue, silenced) if found.severity is Severity.ERROR]
    if problems:
        raise InvalidInput(problems)
    request = build(with_recipe(job, catalogue), catalogue, name, source_uri, output_uri)
    request = merge(request, overrides or {})
    if catalogue.request:
        problems = [
            found
            for found in check(request, catalogue.request)
            if found.severity is Severity.ERROR and found.rule not in silenced
        ]
    if problems:
        raise InvalidInput(problems)
    return request


def build(job: Job, catalogue: Catalogue, name: str, source_uri: str, output_uri: str) -> dict[str, Any]:
    """Return the request of a job that has no errors, unchecked; InvalidInput if it has no image."""
    if job.form is Form.REQUEST:
        return _renamed(job.request, name)
    image = image_of(job, catalogue)
    if isinstance(image, Problem):
        raise InvalidInput([image])
    output = job.get("output_path") or output_uri
    source_dir = job.get("source_dir", "")
    source = source_dir if source_dir.startswith("s3://") else source_uri
    isolated = bool(job.get("enable_network_isolation") and job.get("entry_point"))
    request: dict[str, Any] = {
        "TrainingJobName": name,
        **some(RoleArn=job.get("role")),
        "AlgorithmSpecification": _algorithm(job, image),
        "HyperParameters": hyperparameters(job, name, ISOLATED_CODE if isolated else source, output),
        "InputDataConfig": _channels(job, source if isolated else ""),
        "OutputDataConfig": {"S3OutputPath": output}
        | some(
            KmsKeyId=job.get("output_kms_key"),
            CompressionType="NONE" if job.get("disable_output_compression") else None,
        ),
        "ResourceConfig": _resources(job),
        "StoppingCondition": {"MaxRuntimeInSeconds": job.get("max_run", DEFAULT_RUNTIME_SECONDS)}
        | some(MaxWaitTimeInSeconds=job.get("max_wait")),
    }
    return {key: value for key, value in (request | _options(job)).items() if value not in ({}, [])} | (
        debugger_fields(job, catalogue, name, output)
    )


def _renamed(request: Mapping[str, Any], name: str) -> dict[str, Any]:
    renamed = deepcopy(dict(request)) | {"TrainingJobName": name}
    given = renamed.get("HyperParameters", {})
    if "sagemaker_job_name" in given:
        renamed["HyperParameters"] = given | {"sagemaker_job_name": json.dumps(name)}
    return renamed


def _algorithm(job: Job, image: str) -> dict[str, Any]:
    single = job.inputs if isinstance(job.inputs, Mapping) and "s3_data" in job.inputs else {}
    return {
        "TrainingImage": image,
        # A lone TrainingInput's own mode becomes the job's.
        "TrainingInputMode": single.get("input_mode") or job.get("input_mode", "File"),
    } | some(
        EnableSageMakerMetricsTimeSeries=_time_series(job),
        MetricDefinitions=job.get("metric_definitions"),
        ContainerEntrypoint=job.get("container_entry_point"),
        ContainerArguments=job.get("container_arguments"),
        TrainingImageConfig=_repository(job),
    )


def _repository(job: Job) -> dict[str, Any] | None:
    if not job.get("training_repository_access_mode"):
        return None
    provider = job.get("training_repository_credentials_provider_arn")
    login = {"TrainingRepositoryCredentialsProviderArn": provider} if provider else None
    return {"TrainingRepositoryAccessMode": job.get("training_repository_access_mode")} | some(
        TrainingRepositoryAuthConfig=login
    )


def _time_series(job: Job) -> bool | None:
    """Return what the SDK asks for: metrics as time series where the framework's version reports them."""
    given: bool | None = job.get("enable_sagemaker_metrics")
    if given is not None or job.estimator == "Estimator":
        return given
    if job.estimator == "HuggingFace":
        return True
    since = {"PyTorch": (1, 3), "TensorFlow": (1, 15)}[job.estimator]
    version = job.get("framework_version")
    return True if version and version_key(version) >= since else None


def _resources(job: Job) -> dict[str, Any]:
    config = {"VolumeSizeInGB": job.get("volume_size", DEFAULT_VOLUME_GB)} | some(
        VolumeKmsKeyId=job.get("volume_kms_key"),
        KeepAlivePeriodInSeconds=job.get("keep_alive_period_in_seconds"),
        TrainingPlanArn=job.get("training_plan"),
        InstancePlacementConfig=job.get("instance_placement_config"),
    )
    if job.get("instance_groups") is None:
        return config | some(InstanceType=job.get("instance_type"), InstanceCount=job.get("instance_count"))
    groups = [
        {"InstanceGroupName": group.name, "InstanceType": group.instance_type, "InstanceCount": group.hosts}
        for group in job.groups
    ]
    return config | {"InstanceGroups": groups}


def _channels(job: Job, isolated_source: str) -> list[dict[str, Any]]:
    found, problems = inputs.channels(job)
    if isolated_source:
        code = inputs.code_channel(isolated_source, found)
        if isinstance(code, Problem):
            problems.append(code)
        else:
            found.append(code)
    if problems:
        raise InvalidInput(problems)
    return found


def _options(job: Job) -> dict[str, Any]:
    checkpoint = job.get("checkpoint_s3_uri")
    tags = job.get("tags")
    if isinstance(tags, Mapping):
        tags = [{"Key": key, "Value": value} for key, value in tags.items()]
    vpc = some(SecurityGroupIds=job.get("security_group_ids"), Subnets=job.get("subnets"))
    return some(
        Environment=job.get("environment"),
        Tags=tags,
        VpcConfig=vpc or None,
        ExperimentConfig=job.get("experiment_config"),
        EnableNetworkIsolation=job.get("enable_network_isolation") or None,
        EnableInterContainerTrafficEncryption=job.get("encrypt_inter_container_traffic") or None,
        EnableManagedSpotTraining=job.get("use_spot_instances") or None,
        CheckpointConfig={"S3Uri": checkpoint} | some(LocalPath=job.get("checkpoint_local_path"))
        if checkpoint
        else None,
        TensorBoardOutputConfig=_tensorboard(job.get("tensorboard_output_config")),
        RetryStrategy=_wrapped("MaximumRetryAttempts", job.get("max_retry_attempts")),
        InfraCheckConfig=_wrapped("EnableInfraCheck", job.get("enable_infra_check")),
        RemoteDebugConfig=_wrapped("EnableRemoteDebug", job.get("enable_remote_debug")),
        SessionChainingConfig=_wrapped("EnableSessionTagChaining", job.get("enable_session_tag_chaining")),
    )


def _tensorboard(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    names = {"s3_output_path": "S3OutputPath", "container_local_output_path": "LocalPath"}
    return None if given is None else {names.get(key, key): value for key, value in given.items()}


def _wrapped(name: str, value: Any) -> dict[str, Any] | None:
    return None if value is None else {name: value}
