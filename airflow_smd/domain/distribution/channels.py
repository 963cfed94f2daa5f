"""`fit` inputs as the channels of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.job import Form, Job
from airflow_smd.errors import Problem

_S3_KEYS: Mapping[str, str] = {
    "s3_data": "DataSource.S3DataSource.S3Uri",
    "distribution": "DataSource.S3DataSource.S3DataDistributionType",
    "s3_data_type": "DataSource.S3DataSource.S3DataType",
    "instance_groups": "DataSource.S3DataSource.InstanceGroupNames",
    "attribute_names": "DataSource.S3DataSource.AttributeNames",
    "compression": "CompressionType",
    "content_type": "ContentType",
    "record_wrapping": "RecordWrapperType",
    "input_mode": "InputMode",
    "shuffle_config": "ShuffleConfig",
    "target_attribute_name": "TargetAttributeName",
}
"""The SDK's TrainingInput to the API's Channel."""
_FILE_SYSTEM_KEYS: Mapping[str, str] = {
    "file_system_id": "DataSource.FileSystemDataSource.FileSystemId",
    "file_system_type": "DataSource.FileSystemDataSource.FileSystemType",
    "directory_path": "DataSource.FileSystemDataSource.DirectoryPath",
    "file_system_access_mode": "DataSource.FileSystemDataSource.FileSystemAccessMode",
    "content_type": "ContentType",
}
"""The SDK's FileSystemInput to the API's Channel."""


def channels(job: Job) -> tuple[list[dict[str, Any]], list[Problem]]:
    """Return the channels of `fit` and of `model_uri`, and what is wrong with them."""
    problems: list[Problem] = []
    if job.form is Form.REQUEST:
        given = job.request.get("InputDataConfig") or []
        return [dict(channel) for channel in _mappings(given)], problems
    found = []
    for name, value in _named(job.inputs).items():
        channel = _channel(name, value, "fit" if name == "training" else f"fit.{name}", problems)
        if channel:
            found.append(channel)
    if uri := job.get("model_uri"):
        name = job.get("model_channel_name", "model")
        if any(channel["ChannelName"] == name for channel in found):
            problems.append(_duplicate(name, "model_channel_name"))
        else:
            found.append(_s3_channel(name, uri) | {"ContentType": "application/x-sagemaker-model"})
            found[-1]["InputMode"] = "File"
    return found, problems


def code_channel(source_uri: str, existing: Sequence[Mapping[str, Any]]) -> dict[str, Any] | Problem:
    """Return the channel that brings the code into a job without network."""
    if any(channel["ChannelName"] == "code" for channel in existing):
        return _duplicate("code", "fit.code")
    return _s3_channel("code", source_uri)


def _duplicate(name: str, field: str) -> Problem:
    return Problem(
        rule="duplicate-channel",
        field=field,
        value=name,
        message=f"Two channels would be called {name}; names must be unique.",
        remedy="Rename your channel.",
    )


def _named(inputs: Any) -> dict[str, Any]:
    match inputs:
        case None:
            return {}
        case Mapping() if not {"s3_data", "file_system_id"} & set(inputs):
            return dict(inputs)
        case _:
            return {"training": inputs}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _channel(name: str, value: Any, field: str, problems: list[Problem]) -> dict[str, Any] | None:
    match value:
        case str() if value.startswith("s3://"):
            return _s3_channel(name, value)
        case Mapping() if "file_system_id" in value:
            channel = _translate(name, value, _FILE_SYSTEM_KEYS, field, problems)
            channel["DataSource"]["FileSystemDataSource"].setdefault("FileSystemAccessMode", "ro")
            return channel
        case Mapping() if isinstance(value.get("s3_data"), str):
            channel = _translate(name, value, _S3_KEYS, field, problems)
            source = channel["DataSource"]["S3DataSource"]
            source.setdefault("S3DataType", "S3Prefix")
            if not value.get("target_attribute_name"):
                source.setdefault("S3DataDistributionType", "FullyReplicated")
            return channel
    problems.append(
        Problem(
            rule="channel-input",
            field=field,
            value=value if isinstance(value, str) else repr(value)[:200],
            message="A channel is an s3:// URI, a TrainingInput with s3_data, or a file system with"
            " file_system_id.",
            remedy='Write "s3://bucket/prefix/" or {"s3_data": "s3://bucket/prefix/"}.',
        )
    )
    return None


def _s3_channel(name: str, uri: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def _translate(
    name: str, value: Mapping[str, Any], keys: Mapping[str, str], field: str, problems: list[Problem]
) -> dict[str, Any]:
    channel: dict[str, Any] = {"ChannelName": name}
    for key, setting in value.items():
        if key not in keys:
            meant = facts.suggestion(key, tuple(keys))
            problems.append(
                Problem(
                    rule="unknown-key",
                    field=f"{field}.{key}",
                    value=repr(setting)[:200],
                    message=f"Allowed are {', '.join(keys)}.",
                    remedy=f"Did you mean {meant}?" if meant else "Remove it.",
                )
            )
        elif setting is not None:
            place: dict[str, Any] = channel
            *parents, last = keys[key].split(".")
            for step in parents:
                place = place.setdefault(step, {})
            place[last] = {"Seed": setting["seed"]} if _is_seed(key, setting) else setting
    return channel


def _is_seed(key: str, setting: Any) -> bool:
    return key == "shuffle_config" and isinstance(setting, Mapping) and setting.keys() == {"seed"}
