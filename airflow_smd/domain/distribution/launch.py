"""The hyperparameters by which the training toolkit finds the script and chooses its launcher."""

from __future__ import annotations

import json
from collections.abc import Mapping
from posixpath import basename
from typing import Any

from airflow_smd.domain.distribution.job import Job


def hyperparameters(job: Job, name: str, code: str, output_uri: str) -> dict[str, str]:
    """Return every hyperparameter: the user's, then the script's, then the launcher's."""
    user = job.get("hyperparameters", {})
    if job.estimator == "Estimator" and not job.get("source_dir"):
        # The generic class writes plain text, unless it runs a script of one's own from a folder.
        encoded = {key: str(value) for key, value in user.items()}
    else:
        encoded = {key: json.dumps(value) for key, value in user.items()}
    script = _script(job, name, code) if job.get("entry_point") or job.get("source_dir") else {}
    launcher = launch_hyperparameters(job)
    if job.estimator == "TensorFlow" and job.arguments.get("model_dir") is not False:
        mpi = launcher.get("sagemaker_mpi_enabled", False)
        default = "/opt/ml/model" if mpi else f"{output_uri.rstrip('/')}/{name}/model"
        launcher["model_dir"] = job.get("model_dir") or default
    if compiler := job.get("compiler_config"):
        settings = compiler if isinstance(compiler, Mapping) else {}
        launcher["sagemaker_training_compiler_enabled"] = settings.get("enabled", True)
        launcher["sagemaker_training_compiler_debug_mode"] = settings.get("debug", False)
    return encoded | {key: json.dumps(value) for key, value in (script | launcher).items()}


def launch_hyperparameters(job: Job) -> dict[str, Any]:
    """Return the hyperparameters by which the training toolkit chooses and sets up its launcher."""
    if (by_torch := _torch(job)) is not None:
        return by_torch
    groups = _named_groups(job)
    found: dict[str, Any] = {"sagemaker_distribution_instance_groups": groups} if groups else {}
    for key, hyperparameter in _SWITCHES.items():
        section = job.section(key)
        if section is not None:
            found[hyperparameter] = section.get("enabled", False)
    if (mpi := job.section("mpi")) is not None:
        found |= _mpi(mpi)
    if "smdistributed" in job.distribution or (
        job.estimator == "PyTorch" and "pytorchddp" in job.distribution
    ):
        found |= _smdistributed(job)
    return found


def _torch(job: Job) -> dict[str, Any] | None:
    """Return the hyperparameters of torchrun or of HuggingFace's DDP, None for any other launcher."""
    # SDK v2 drops the group here, so that each of several groups starts a torchrun of its own.
    groups = _named_groups(job) if len(job.groups) > 1 else []
    found: dict[str, Any] = {"sagemaker_distribution_instance_groups": groups} if groups else {}
    if job.estimator == "HuggingFace" and job.enabled("pytorchddp"):
        return found | {"sagemaker_pytorch_ddp_enabled": _switch(job, "pytorchddp")} | _typed(job)
    if not job.torchrun or job.framework == "tensorflow":
        return None
    # The HuggingFace class drops smdistributed here. SMP v2 must not lose its mp_parameters by that; SMDDP
    # under torchrun needs none of its settings.
    if "smdistributed" in job.distribution and (job.estimator != "HuggingFace" or job.smp2):
        found |= _smdistributed(job)
    return found | {"sagemaker_torch_distributed_enabled": _switch(job, "torch_distributed")} | _typed(job)


def _switch(job: Job, name: str) -> Any:
    return (job.section(name) or {}).get("enabled", False)


_SWITCHES: Mapping[str, str] = {
    "pytorchxla": "sagemaker_pytorch_xla_multi_worker_enabled",
    "parameter_server": "sagemaker_parameter_server_enabled",
    "multi_worker_mirrored_strategy": "sagemaker_multi_worker_mirrored_strategy_enabled",
}


def _typed(job: Job) -> dict[str, Any]:
    return some(sagemaker_instance_type=job.get("instance_type"))


def _mpi(mpi: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "sagemaker_mpi_enabled": mpi.get("enabled", False),
        "sagemaker_mpi_custom_mpi_options": mpi.get("custom_mpi_options", ""),
    } | some(sagemaker_mpi_num_of_processes_per_host=mpi.get("processes_per_host"))


def _named_groups(job: Job) -> list[str]:
    if job.group_names:
        return list(job.group_names)
    return [group.name for group in job.groups if group.name] if len(job.groups) == 1 and job.on else []


def _smdistributed(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = {}
    model = job.section("modelparallel") or {}
    if model.get("enabled") is True and job.smp_parameters:
        found["mp_parameters"] = dict(job.smp_parameters)
    data = job.section("dataparallel") or job.section("pytorchddp") or {}
    found["sagemaker_distributed_dataparallel_enabled"] = data.get("enabled", False)
    found["sagemaker_instance_type"] = job.get("instance_type")  # null for a heterogeneous cluster
    if data.get("enabled"):
        options = data.get("custom_mpi_options", "")
        found["sagemaker_distributed_dataparallel_custom_mpi_options"] = options
    return found


def _script(job: Job, name: str, code: str) -> dict[str, Any]:
    entry_point = job.get("entry_point")
    program = entry_point if job.get("source_dir") or not entry_point else basename(entry_point)
    return {
        "sagemaker_program": program,
        "sagemaker_submit_directory": code,
        "sagemaker_container_log_level": job.get("container_log_level", 20),
        "sagemaker_job_name": name,
        "sagemaker_region": job.region,
    }


def some(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {key: value for key, value in fields.items() if value is not None}
