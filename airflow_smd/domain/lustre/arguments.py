"""The plain arguments of a file-system task, read into values with every problem kept."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from airflow_smd.domain.lustre.need import Need
from airflow_smd.domain.lustre.values import LustreConfig
from airflow_smd.domain.units import parse_bytes
from airflow_smd.errors import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """What the file system will hold: an S3 prefix and its size."""

    uri: str
    size_bytes: int
    files: int | None


class Reading:
    """Turns plain arguments into values and keeps every problem found on the way."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def read(self, field: str, value: Any, convert: Callable[[Any], Any], allowed: str, remedy: str) -> Any:
        """Return `convert(value)`, or None and a problem."""
        try:
            return convert(value)
        except (TypeError, ValueError, KeyError, OverflowError):
            self.problems.append(
                Problem(
                    rule=f"{field.rpartition('.')[2].replace('_', '-')}-unreadable",
                    field=field,
                    value=value,
                    message=f"{allowed} is needed.",
                    remedy=remedy,
                )
            )
            return None


ARGUMENTS: Mapping[str, tuple[Callable[[Any], Any], str, str]] = {
    "nodes": (lambda value: _whole(value, 1), "A whole number of at least 1", "Give the training instances."),
    "epochs": (lambda value: _whole(value, 1), "A whole number of at least 1", "Give the epochs of the run."),
    "epoch_seconds": (
        lambda value: None if value is None else _positive(value),
        "A number above 0",
        "Give the seconds that an epoch takes when data never keeps a GPU waiting.",
    ),
    "subnet_id": (
        lambda value: _matched(r"subnet-[0-9a-f]{8,17}", value),
        "One subnet id (subnet-...)",
        "Give the subnet that the training job will run in.",
    ),
    "security_group_ids": (
        lambda value: security_groups(value),
        "At least one security group id (sg-...)",
        "Give the security groups that the training job will have.",
    ),
    "when_not_worth_it": (
        lambda value: ("create", "skip")[("create", "skip").index(value)],
        "`create` or `skip`",
        "Say `skip` to read from S3 where a file system is not worth its price.",
    ),
}
"""Argument -> how it is read, what is allowed, and what to do."""


def security_groups(value: Any) -> tuple[str, ...]:
    """Return the ids in a list, or in a text as Jinja renders a list."""
    texts = [value] if isinstance(value, str) else list(value)
    found = [group_id for text in texts for group_id in re.findall(r"sg-[0-9a-f]{8,17}", str(text))]
    left = re.sub(r"sg-[0-9a-f]{8,17}|[\s,;'\"\[\]()]", "", " ".join(map(str, texts)))
    if not found or left:
        raise ValueError(left)
    return tuple(dict.fromkeys(found))


def read_dataset(value: Any, reading: Reading) -> Dataset | None:
    """Return the data set of a manifest, or of `{"uri": ..., "bytes": ...}`."""
    if not isinstance(value, Mapping):
        return reading.read(  # type: ignore[no-any-return]
            "dataset",
            value,
            dict,
            "A manifest of a preprocessed data set",
            'Give the preprocess task\'s output, or {"uri": "s3://...", "bytes": "100GB"}.',
        )
    uri = reading.read(
        "dataset.uri",
        value.get("uri"),
        lambda text: _matched(r"s3://[a-z0-9][a-z0-9.\-]{2,62}(/.*)?", text),
        "An S3 prefix (s3://bucket/prefix/)",
        "Give the prefix that holds the shards.",
    )
    size = reading.read(
        "dataset.bytes", value, _size_bytes, "A size above 0", "Give dataset.bytes, as in 100GB."
    )
    files = reading.read("dataset.files", value, _files, "A whole number", "Give the number of files.")
    return Dataset(uri=uri, size_bytes=size, files=files) if uri and size else None


def _shards(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [shard for split in manifest.get("splits", {}).values() for shard in split.get("shards", ())]


def _size_bytes(manifest: Mapping[str, Any]) -> int:
    given = manifest.get("bytes")
    if given is None:
        given = sum(int(shard["bytes"]) for shard in _shards(manifest)) or sum(
            int(split["bytes"]) for split in manifest.get("splits", {}).values()
        )
    size = parse_bytes(given) if isinstance(given, str) else int(given)
    if size <= 0:
        raise ValueError(size)
    return size


def _files(manifest: Mapping[str, Any]) -> int | None:
    given = manifest.get("files", manifest.get("file_count"))
    if given is None or isinstance(given, list):
        return len(given or _shards(manifest)) or None
    return _whole(given, 1)


def read_need(
    arguments: Mapping[str, Any],
    values: Mapping[str, Any],
    dataset: Dataset,
    region: str | None,
    reading: Reading,
) -> Need | None:
    """Return what the run needs, once everything that it is made of could be read."""
    more = dict(arguments.get("need") or {})
    known = {field.name for field in fields(Need)}
    for name in sorted(set(more) - known):
        reading.problems.append(_unknown("need", name, more[name], known))
    if reading.problems:
        return None
    return Need(
        **{
            "dataset_bytes": dataset.size_bytes,
            "file_count": dataset.files,
            "nodes": values["nodes"],
            "epochs": values["epochs"],
            "epoch_seconds": values["epoch_seconds"],
            "instance_type": arguments.get("instance_type"),
            **({"region": region} if region else {}),
            **more,
        }
    )


def read_config(value: Any, reading: Reading) -> LustreConfig | None:
    """Return the file system that the user chose in place of a plan."""
    known = {field.name for field in fields(LustreConfig)}
    if not isinstance(value, Mapping) or "deployment_type" not in value:
        reading.problems.append(
            Problem(
                rule="plan-unreadable",
                field="plan",
                value=value,
                message="A mapping with at least deployment_type is needed.",
                remedy='Give {"deployment_type": "SCRATCH_2", "storage_capacity_gib": 1200}, or nothing.',
            )
        )
        return None
    for name in sorted(set(value) - known):
        reading.problems.append(_unknown("plan", name, value[name], known))
    numbers = {
        name: reading.read(f"plan.{name}", value[name], int, "A whole number", "Give a number.")
        for name in _NUMBERS & set(value)
        if value[name] is not None
    }
    return LustreConfig(**{**{k: v for k, v in value.items() if k in known}, **numbers})


_NUMBERS = {
    "storage_capacity_gib",
    "per_unit_storage_throughput",
    "metadata_iops",
    "throughput_capacity_mbps",
    "read_cache_gib",
    "imported_file_chunk_mib",
}


def _unknown(field: str, name: str, value: Any, known: set[str]) -> Problem:
    return Problem(
        rule=f"{field}-unknown-field",
        field=f"{field}.{name}",
        value=value,
        message=f"There is no such field; there are {', '.join(sorted(known))}.",
        remedy="Correct the name or leave it out.",
    )


def _whole(value: Any, least: int) -> int:
    number = float(value)
    if isinstance(value, bool) or number != int(number) or number < least:
        raise ValueError(value)
    return int(number)


def _positive(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number) or number <= 0:
        raise ValueError(value)
    return number


def _matched(pattern: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(pattern, value.strip()):
        raise ValueError(value)
    return value.strip()
