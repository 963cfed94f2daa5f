"""The hyperparameter protocol of the training toolkit, read back from a CreateTrainingJob request."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.job import Form, Job
from airflow_smd.domain.distribution.parsing import read_arguments
from airflow_smd.domain.distribution.reading import Parser

PROTOCOL: Mapping[str, str] = {
    "sagemaker_mpi_enabled": "mpi.enabled",
    "sagemaker_mpi_num_of_processes_per_host": "mpi.processes_per_host",
    "sagemaker_mpi_custom_mpi_options": "mpi.custom_mpi_options",
    "sagemaker_distributed_dataparallel_enabled": "smdistributed.dataparallel.enabled",
    "sagemaker_distributed_dataparallel_custom_mpi_options": "smdistributed.dataparallel.custom_mpi_options",
    "mp_parameters": "smdistributed.modelparallel.parameters",
    "sagemaker_torch_distributed_enabled": "torch_distributed.enabled",
    "sagemaker_pytorch_ddp_enabled": "pytorchddp.enabled",
    "sagemaker_pytorch_xla_multi_worker_enabled": "pytorchxla.enabled",
    "sagemaker_parameter_server_enabled": "parameter_server.enabled",
    "sagemaker_multi_worker_mirrored_strategy_enabled": "multi_worker_mirrored_strategy.enabled",
    "sagemaker_distribution_instance_groups": "instance_groups",
}
"""Hyperparameter to place in the SDK's `distribution`."""
RESERVED = (
    *PROTOCOL,
    "sagemaker_instance_type",
    "sagemaker_training_compiler_enabled",
    "sagemaker_training_compiler_debug_mode",
)
"""What decides how the container starts the script; a user's own hyperparameter must not be called so."""
SCRIPT: Mapping[str, str] = {
    "sagemaker_program": "entry_point",
    "sagemaker_submit_directory": "source_dir",
    "sagemaker_container_log_level": "container_log_level",
}
DRIVERS = "sm_drivers"
"""Channel with the launchers that SDK v3 brings along."""
BOOKKEEPING = ("sagemaker_job_name", "sagemaker_region", "sagemaker_instance_type")


def read_request(parser: Parser, request: Mapping[str, Any]) -> Job:
    """Return the job that a CreateTrainingJob request describes."""
    given = request.get("HyperParameters")
    if given is not None and not isinstance(given, Mapping):
        parser.wrong_type("HyperParameters", given, "a mapping")
    decoded = {key: decode(value) for key, value in given.items()} if isinstance(given, Mapping) else {}
    found = _reverse(request)
    found["hyperparameters"] = {
        key: value for key, value in decoded.items() if key not in {*RESERVED, *SCRIPT, *BOOKKEEPING}
    }
    found |= {SCRIPT[key]: value for key, value in decoded.items() if key in SCRIPT}
    found["compiler_config"] = decoded.get("sagemaker_training_compiler_enabled")
    distribution = _distribution(decoded)
    if "mp_parameters" in decoded and _has_drivers(request):
        distribution["torch_distributed"] = {"enabled": True}  # SDK v3 starts SMP v2 by its own driver
    if distribution:
        found["distribution"] = distribution
    image = found.get("image_uri")
    estimator = _estimator(image if isinstance(image, str) else "", distribution, decoded)
    known = facts.arguments()
    usable = {key: value for key, value in found.items() if estimator in known[key].estimators}
    region = decoded.get("sagemaker_region") or _region(image)
    return Job(
        form=Form.REQUEST,
        estimator=estimator,
        region=region if isinstance(region, str) else "",
        arguments=read_arguments(parser, usable, estimator),
        request=request,
    )


def _has_drivers(request: Mapping[str, Any]) -> bool:
    channels = request.get("InputDataConfig")
    named = (
        [channel.get("ChannelName") for channel in channels if isinstance(channel, Mapping)]
        if (isinstance(channels, list))
        else []
    )
    return DRIVERS in named


def decode(value: Any) -> Any:
    """Return a hyperparameter as the toolkit reads it: JSON if it is JSON, else the text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_constant=str)
    except (ValueError, RecursionError):
        return value


def _reverse(request: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for fact in facts.arguments().values():
        if not fact.field or fact.field.startswith(("HyperParameters", "InputDataConfig", "TrainingJobName")):
            continue
        value: Any = request
        for step in fact.field.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None:
            found[fact.name] = value
    for name in ("framework_version", "py_version", "transformers_version", "tensorflow_version"):
        found.pop(name, None)  # their field is the image, which image_uri has
    found.pop("pytorch_version", None)
    found.pop("rules", None)  # the wire form of rules is not the estimator's
    if "disable_output_compression" in found:
        found["disable_output_compression"] = found["disable_output_compression"] == "NONE"
    if isinstance(groups := found.get("instance_groups"), list):
        names = {
            "InstanceGroupName": "instance_group_name",
            "InstanceType": "instance_type",
            "InstanceCount": "instance_count",
        }
        found["instance_groups"] = [
            {names.get(key, key): value for key, value in group.items()}
            if isinstance(group, Mapping)
            else group
            for group in groups
        ]
    config = request.get("ProfilerConfig")
    if isinstance(config, Mapping):
        interval = config.get("ProfilingIntervalInMilliseconds")
        found["profiler_config"] = {"system_monitor_interval_millis": interval} if interval else {}
    return found


def _distribution(decoded: Mapping[str, Any]) -> dict[str, Any]:
    distribution: dict[str, Any] = {}
    for key, place in PROTOCOL.items():
        if key not in decoded:
            continue
        if key == "sagemaker_distributed_dataparallel_enabled" and not decoded[key]:
            continue  # the SDK writes false beside every model-parallel job
        where = distribution
        *parents, last = place.split(".")
        for step in parents:
            where = where.setdefault(step, {})
        where[last] = decoded[key]
        if key == "mp_parameters":
            where["enabled"] = True
    return distribution


def _estimator(image: str, distribution: Mapping[str, Any], decoded: Mapping[str, Any]) -> str:
    match = re.search(r"/(huggingface|pytorch|tensorflow|smdistributed)[a-z-]*:", image)
    if match:
        return {"huggingface": "HuggingFace", "tensorflow": "TensorFlow"}.get(match[1], "PyTorch")
    strategies = {"parameter_server", "multi_worker_mirrored_strategy"} & set(distribution)
    # the SDK's TensorFlow class gives every job a model_dir
    return "TensorFlow" if strategies or "model_dir" in decoded else "PyTorch"


def _region(image: Any) -> str:
    match = re.search(r"\.dkr\.ecr\.([a-z0-9-]+)\.", image) if isinstance(image, str) else None
    return match[1] if match else ""


def wire_field(field: str, form: Form) -> str:
    """Return a problem's field as the author of that form spells it."""
    match form:
        case Form.ESTIMATOR:
            return field
        case Form.DISTRIBUTION:
            return field.removeprefix("distribution.")
        case Form.REQUEST:
            if field.startswith("distribution."):
                return _hyperparameter(field.removeprefix("distribution."))
            head, dot, rest = field.partition(".")
            fact = facts.arguments().get(head)
            return f"{fact.field}{dot}{rest}" if fact and fact.field else field


def _hyperparameter(place: str) -> str:
    for key, spelt in PROTOCOL.items():
        if place == spelt or place.startswith((f"{spelt}.", f"{spelt}[")):
            return f"HyperParameters.{key}{place[len(spelt) :]}"
    by_section = next((key for key, spelt in PROTOCOL.items() if spelt.startswith(f"{place}.")), place)
    return f"HyperParameters.{by_section}"
