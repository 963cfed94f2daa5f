"""From what a user asks for to shards: the plan, its fingerprint and the job's request."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from airflow_smd.domain.dataset import MANIFEST_NAME, S3Folder, Source
from airflow_smd.domain.units import GIB
from airflow_smd.errors import Problem, Severity

SHARD_RECIPE = 1
"""Grows when the container code makes other bytes of the same input, so that sealed data are made anew."""
ROOT = "/opt/ml/processing"
CODE_NAME = "preprocess.pyz"
JOB_NAME = "job.json"
USER_CODE_NAME = "user.zip"
LEAST_VOLUME_GB = 30
"""SageMaker's own default for processing jobs (sagemaker 3.27: Processor)."""
LARGEST_VOLUME_GB = 16_384
"""botocore: ProcessingVolumeSizeInGB."""
_VOLUME_FACTORS = {"tabular": 40, "copy": 4, "images": 8, "function": 10}
"""Disk bytes for each input byte: the input, then twice the output. A CSV row of 100 bytes becomes about 2 kB
of tar (four blocks of 512 bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How samples become shards."""

    world_sizes: Sequence[int]
    """Every number of ranks that shall be able to read the shards evenly."""
    validation_fraction: float = 0.1
    seed: int = 0
    shard_bytes: int = 128 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """What a processing job runs on."""

    role: str
    instance_type: str
    instance_count: int = 1
    image_uri: str | None = None
    volume_gb: int | None = None
    """None: sized from the data."""
    max_run_seconds: int = 86_400
    subnets: Sequence[str] = ()
    security_group_ids: Sequence[str] = ()
    kms_key_id: str | None = None
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user asks for, checked."""

    source: S3Folder
    output: S3Folder
    transform: Mapping[str, Any]
    sharding: Sharding
    machines: Machines


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will be made of the data as they are now, and where."""

    wish: Wish
    source: Mapping[str, Any]
    """Summary of the raw data (`Source.summary`)."""
    classes: Sequence[str] | None
    fingerprint: str

    @property
    def folder(self) -> S3Folder:
        """Return where shards and manifest go: the same data and transform always to the same place."""
        return self.wish.output / self.fingerprint

    @property
    def manifest_uri(self) -> str:
        """Return the S3 URI of the seal."""
        return f"{self.folder.uri}{MANIFEST_NAME}"

    def job_file(self) -> str:
        """Return what the container is told (`container.mapping.Job`), as JSON."""
        sharding = self.wish.sharding
        return json.dumps(
            {
                "transform": dict(self.wish.transform),
                "world_sizes": list(sharding.world_sizes),
                "validation_fraction": sharding.validation_fraction,
                "seed": sharding.seed,
                "shard_bytes": sharding.shard_bytes,
                "classes": self.classes,
                "fingerprint": self.fingerprint,
            },
            sort_keys=True,
        )


def plan(wish: Wish, source: Source, code_digest: str = "") -> Plan:
    """Return the plan for the data as they are.

    The fingerprint covers the data (names, ETags, sizes), the transform with its options and code, and
    everything that decides which sample stands where. It leaves out the machines: shards of two instances
    serve as well as shards of one.
    """
    kind = wish.transform["kind"]
    named = wish.transform.get("classes")
    by_directory = kind != "tabular" and wish.transform.get("class_from", "directory") == "directory"
    sharding = wish.sharding
    content = {
        "recipe": SHARD_RECIPE,
        "source": source.fingerprint,
        "transform": dict(wish.transform),
        "code": code_digest,
        "world_sizes": list(sharding.world_sizes),
        "validation_fraction": sharding.validation_fraction,
        "seed": sharding.seed,
        "shard_bytes": sharding.shard_bytes,
    }
    return Plan(
        wish=wish,
        source=source.summary(),
        classes=named or (source.directories if by_directory else None),
        fingerprint=blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest(),
    )


def plan_problems(wish: Wish, source: Source) -> list[Problem]:
    """Return what is wrong with the wish in view of the data."""
    machines, count = wish.machines, len(source.objects)
    problems = []
    if count < machines.instance_count:
        problems.append(
            Problem(
                rule="more-instances-than-files",
                field="instance_count",
                value=machines.instance_count,
                message=f"each instance takes whole files, and {source.uri} has {count}.",
                remedy=f"Use instance_count={count} or fewer, or more files.",
            )
        )
    wanted = volume_gb(wish, source.size_bytes)
    if wanted > LARGEST_VOLUME_GB:
        problems.append(
            Problem(
                rule="volume-too-large",
                field="instance_count",
                value=machines.instance_count,
                message=f"each instance would need {wanted} GB of disk; {LARGEST_VOLUME_GB} are allowed.",
                remedy="Use more instances, or say job.volume_gb if you know that less is enough.",
            )
        )
    if wish.transform["kind"] != "tabular":
        problems += _twin_problems(source)
    return problems


def _twin_problems(source: Source) -> list[Problem]:
    """Find objects that differ in their extension only: they would be two samples of one key."""
    seen: dict[str, str] = {}
    for item in source.objects:
        folder, slash, base = item.name.rpartition("/")
        stem = f"{folder}{slash}{base.rpartition('.')[0] or base}"
        if stem in seen and not item.name.endswith(".tar"):
            return [
                Problem(
                    rule="two-samples-of-one-key",
                    field="source_uri",
                    value=source.uri,
                    message=f"{seen[stem]} and {item.name} differ in their extension only.",
                    remedy="Pack the files of a sample into tar files (kind=copy reads them), or rename one.",
                )
            ]
        seen[stem] = item.name
    return []


def volume_gb(wish: Wish, source_bytes: int) -> int:
    """Return the disk of each instance in GB, from the data's bytes unless the user said it."""
    if wish.machines.volume_gb is not None:
        return wish.machines.volume_gb
    share = source_bytes / wish.machines.instance_count
    return max(LEAST_VOLUME_GB, math.ceil(share * _VOLUME_FACTORS[wish.transform["kind"]] / GIB))


@cache
def _images() -> Mapping[str, str]:
    table = files("airflow_smd.domain") / "tables" / "processing_images.json"
    return {row["region"]: row["image_uri"] for row in json.loads(table.read_text("utf-8"))}


def default_image(region: str) -> str | None:
    """Return AWS's scikit-learn image of a Region (Python 3.9; enough for tabular and copy)."""
    return _images().get(region)


def image_problems(wish: Wish, region: str) -> list[Problem]:
    """Return what is wrong with leaving the image to us."""
    if wish.machines.image_uri:
        return []
    if default_image(region) is None:
        return [
            Problem(
                rule="no-default-image",
                field="image_uri",
                value=None,
                message=f"no processing image is known for {region}.",
                remedy="Give image_uri: any image with Python 3.9 or newer.",
            )
        ]
    if wish.transform["kind"] != "images":
        return []
    return [
        Problem(
            rule="image-without-pillow",
            field="image_uri",
            value=None,
            message="transform.kind=images needs Pillow, which the default image is not known to have.",
            remedy="Give image_uri: a Deep Learning Container, or your own.",
            severity=Severity.WARNING,
        )
    ]


def request(
    plan: Plan, *, job_name: str, code_uri: str, region: str, tags: Mapping[str, str]
) -> dict[str, Any]:
    """Return the CreateProcessingJob request."""
    machines = plan.wish.machines
    wanted: dict[str, Any] = {
        "ProcessingJobName": job_name,
        "RoleArn": machines.role,
        "AppSpecification": {
            "ImageUri": machines.image_uri or default_image(region),
            "ContainerEntrypoint": ["python3", f"{ROOT}/input/code/{CODE_NAME}"],
        },
        "ProcessingInputs": [
            _input("data", plan.wish.source.uri, "ShardedByS3Key"),
            _input("code", code_uri, "FullyReplicated"),
        ],
        "ProcessingOutputConfig": {
            "Outputs": [
                {
                    "OutputName": "shards",
                    "S3Output": {
                        "S3Uri": plan.folder.uri.rstrip("/"),
                        "LocalPath": f"{ROOT}/output",
                        "S3UploadMode": "EndOfJob",
                    },
                }
            ]
        },
        "ProcessingResources": {
            "ClusterConfig": {
                "InstanceCount": machines.instance_count,
                "InstanceType": machines.instance_type,
                "VolumeSizeInGB": volume_gb(plan.wish, plan.source["bytes"]),
            }
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": machines.max_run_seconds},
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    if machines.environment:
        wanted["Environment"] = dict(machines.environment)
    if machines.subnets:
        vpc = {"Subnets": list(machines.subnets), "SecurityGroupIds": list(machines.security_group_ids)}
        wanted["NetworkConfig"] = {"VpcConfig": vpc}
    if machines.kms_key_id:
        wanted["ProcessingOutputConfig"]["KmsKeyId"] = machines.kms_key_id
        wanted["ProcessingResources"]["ClusterConfig"]["VolumeKmsKeyId"] = machines.kms_key_id
    return wanted


def _input(name: str, uri: str, distribution: str) -> dict[str, Any]:
    return {
        "InputName": name,
        "S3Input": {
            "S3Uri": uri,
            "LocalPath": f"{ROOT}/input/{name}",
            "S3DataType": "S3Prefix",
            "S3InputMode": "File",
            "S3DataDistributionType": distribution,
            "S3CompressionType": "None",
        },
    }


def result(
    plan: Plan,
    splits: Mapping[str, Mapping[str, int]],
    *,
    reused: bool,
    seconds: float | None,
) -> dict[str, Any]:
    """Return what the task tells those that come after it, as small JSON."""

    def total(name: str) -> int:
        return sum(split[name] for split in splits.values())

    return {
        "uri": plan.folder.uri,
        "manifest_uri": plan.manifest_uri,
        "bytes": total("bytes"),
        "samples": total("samples"),
        "shards": total("shards"),
        "files": total("shards") + 1,
        "fingerprint": plan.fingerprint,
        "reused": reused,
        "splits": {name: dict(split) for name, split in splits.items()},
        "seconds": seconds,
        "instance_type": plan.wish.machines.instance_type,
        "instance_count": plan.wish.machines.instance_count,
    }


def world_multiple(world_sizes: Iterable[int]) -> int:
    """Return what the number of shards must be a multiple of."""
    return math.lcm(*world_sizes)
