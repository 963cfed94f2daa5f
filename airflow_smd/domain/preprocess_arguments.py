"""The arguments of a preprocessing task: plain values, perhaps rendered ones, read with all problems."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_smd.domain.dataset import S3Folder
from airflow_smd.domain.preprocess import LARGEST_VOLUME_GB, Machines, Sharding, Wish, world_multiple
from airflow_smd.domain.transforms import transform_problems
from airflow_smd.domain.units import MIB, parse_bytes
from airflow_smd.errors import Problem, refuse

ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
INSTANCE_TYPE = re.compile(r"ml\.[a-z0-9-]+\.(metal|[a-z0-9-]*(medium|large))")
LARGEST_INSTANCE_COUNT = 100
LARGEST_RUN_SECONDS = 777_600
"""botocore: ProcessingInstanceCount, ProcessingMaxRuntimeInSeconds."""
LARGEST_MULTIPLE = 10_000
"""Shards of one host and split that a set of world sizes may ask for."""

_SHARDING = ("validation_fraction", "seed", "shard_bytes")
_JOB = (
    "volume_gb",
    "max_run_seconds",
    "subnets",
    "security_group_ids",
    "kms_key_id",
    "environment",
)


class Reader:
    """Turns plain values into typed ones and remembers what was wrong with them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def refuse(self, rule: str, field: str, value: Any, message: str, remedy: str) -> None:
        """Remember a problem."""
        self.problems.append(Problem(rule=rule, field=field, value=value, message=message, remedy=remedy))

    def folder(self, field: str, value: Any) -> S3Folder | None:
        """Read an S3 folder."""
        try:
            return S3Folder.parse(str(value))
        except ValueError as error:
            self.refuse("s3-uri", field, value, f"{error}.", "Name a bucket and a folder in it.")
            return None

    def number(self, field: str, value: Any, low: float, high: float, kind: type = int) -> Any:
        """Read a number within limits, also from text; `low` where there is none."""
        try:
            number = kind(str(value).strip())
        except ValueError:
            number = None
        if isinstance(value, bool) or number is None or not low <= number <= high:
            what = "a whole number" if kind is int else "a number"
            self.refuse("number", field, value, f"{what} from {low} to {high} is wanted.", "Correct it.")
            return kind(low)
        return number

    def matching(self, field: str, value: Any, pattern: re.Pattern[str], example: str) -> str:
        """Read text of a given form."""
        if not pattern.fullmatch(str(value)):
            self.refuse("form", field, value, f"it has not the form of {example}.", "Give the whole name.")
        return str(value)

    def structure(self, field: str, value: Any, kind: type) -> Any:
        """Read a list or mapping, also from JSON text; an empty one where there is none."""
        if isinstance(value, str) and "{{" not in value:
            try:
                value = json.loads(value)
            except ValueError:
                value = [part for part in re.split(r"[,\s]+", value) if part] if kind is list else value
        if kind is list and isinstance(value, Sequence) and not isinstance(value, str):
            return list(value)
        if kind is dict and isinstance(value, Mapping):
            return dict(value)
        self.refuse("structure", field, value, f"a {kind.__name__} is wanted.", "Correct it.")
        return kind()

    def known(self, field: str, value: Mapping[str, Any], names: Sequence[str]) -> None:
        """Refuse names that are not known."""
        for name in value:
            if name not in names:
                allowed = f"there is no such option. Allowed: {', '.join(names)}."
                self.refuse("unknown-option", f"{field}.{name}", value[name], allowed, "Correct the name.")


def read_wish(raw: Mapping[str, Any]) -> tuple[Wish | None, list[Problem]]:
    """Return what the arguments of the operator ask for, or None, and everything that is wrong with them."""
    reader = Reader()
    source = reader.folder("source_uri", raw["source_uri"])
    output = reader.folder("output_uri", raw["output_uri"])
    if source and output and source.bucket == output.bucket and output.prefix.startswith(source.prefix):
        message = f"it lies inside source_uri={source.uri}, so shards would become raw data."
        reader.refuse("output-in-source", "output_uri", output.uri, message, "Write to another folder.")
    transform = reader.structure("transform", raw["transform"], dict)
    if transform or raw["transform"] == {}:
        reader.problems += transform_problems(transform, has_code=bool(raw.get("code_dir")))
    sharding = _sharding(reader, raw["world_sizes"], raw.get("sharding") or {})
    machines = _machines(reader, raw)
    if reader.problems or source is None or output is None:
        return None, reader.problems
    wish = Wish(source=source, output=output, transform=transform, sharding=sharding, machines=machines)
    return wish, []


def refuse_fixed(raw: Mapping[str, Any]) -> None:
    """Refuse what is wrong already when the DAG is parsed: values that are not templates."""
    refuse(problem for problem in read_wish(raw)[1] if "{{" not in str(problem.value))


def wish_of(raw: Mapping[str, Any]) -> Wish:
    """Return what the rendered arguments ask for; InvalidInput lists every problem."""
    wish, problems = read_wish(raw)
    refuse(problems)
    if wish is None:
        raise AssertionError("without problems there is a wish")
    return wish


def _sharding(reader: Reader, world_sizes: Any, raw: Any) -> Sharding:
    options = reader.structure("sharding", raw, dict)
    reader.known("sharding", options, _SHARDING)
    if isinstance(world_sizes, int) and not isinstance(world_sizes, bool):
        world_sizes = [world_sizes]
    given = reader.structure("world_sizes", world_sizes, list)
    sizes = sorted({reader.number(f"world_sizes[{i}]", size, 1, 100_000) for i, size in enumerate(given)})
    if not given:
        message = "at least one number of ranks is wanted."
        reader.refuse(
            "no-world-size", "world_sizes", world_sizes, message, "Give nodes × processes per node."
        )
    elif world_multiple(sizes) > LARGEST_MULTIPLE:
        message = (
            f"the shards would be a multiple of {world_multiple(sizes)}; up to {LARGEST_MULTIPLE} is allowed."
        )
        reader.refuse("world-sizes", "world_sizes", given, message, "Give sizes that divide each other.")
    shard_bytes = options.get("shard_bytes", 128 * MIB)
    try:
        shard_bytes = parse_bytes(str(shard_bytes))
    except ValueError as error:
        reader.refuse("size", "sharding.shard_bytes", shard_bytes, f"{error}.", "100 to 256 MB serve best.")
        shard_bytes = 128 * MIB
    fraction = options.get("validation_fraction", 0.1)
    return Sharding(
        world_sizes=sizes,
        validation_fraction=reader.number("sharding.validation_fraction", fraction, 0.0, 0.9, float),
        seed=reader.number("sharding.seed", options.get("seed", 0), 0, 2**63 - 1),
        shard_bytes=reader.number("sharding.shard_bytes", shard_bytes, 1, 2**50),
    )


def _machines(reader: Reader, raw: Mapping[str, Any]) -> Machines:
    job = reader.structure("job", raw.get("job") or {}, dict)
    reader.known("job", job, _JOB)
    volume = job.get("volume_gb")
    subnets = reader.structure("job.subnets", job.get("subnets", []), list)
    groups = reader.structure("job.security_group_ids", job.get("security_group_ids", []), list)
    if bool(subnets) != bool(groups):
        message = "subnets and security_group_ids are wanted together."
        reader.refuse("vpc", "job.subnets", subnets, message, "Give both, or neither.")
    environment = reader.structure("job.environment", job.get("environment", {}), dict)
    return Machines(
        role=reader.matching("role", raw["role"], ROLE, "arn:aws:iam::123456789012:role/Name"),
        instance_type=reader.matching("instance_type", raw["instance_type"], INSTANCE_TYPE, "ml.m5.xlarge"),
        instance_count=reader.number("instance_count", raw["instance_count"], 1, LARGEST_INSTANCE_COUNT),
        image_uri=raw.get("image_uri") or None,
        volume_gb=None if volume is None else reader.number("job.volume_gb", volume, 1, LARGEST_VOLUME_GB),
        max_run_seconds=reader.number(
            "job.max_run_seconds", job.get("max_run_seconds", 86_400), 1, LARGEST_RUN_SECONDS
        ),
        subnets=subnets,
        security_group_ids=groups,
        kms_key_id=job.get("kms_key_id"),
        environment={str(key): str(value) for key, value in environment.items()} or None,
    )


def code_problems(code_dir: str | None, is_directory: bool) -> list[Problem]:
    """Return what is wrong with the directory of the user's code."""
    if not code_dir or is_directory:
        return []
    return [
        Problem(
            rule="no-code",
            field="code_dir",
            value=code_dir,
            message="there is no such directory on the worker.",
            remedy="Ship it beside the DAG file and name it relative to that file.",
        )
    ]
