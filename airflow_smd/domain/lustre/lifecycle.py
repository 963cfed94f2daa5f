"""What a file system is doing, whose it is, and what its task does next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, assert_never

from airflow_smd.domain.identity import TaskIdentity

NAME_TAG = "airflow-smd:name"
DATASET_PATH = "/dataset"
"""Where the data set appears in the file system."""


class FileSystemLifecycle(StrEnum):
    """botocore: FileSystemLifecycle."""

    AVAILABLE = "AVAILABLE"
    CREATING = "CREATING"
    FAILED = "FAILED"
    DELETING = "DELETING"
    MISCONFIGURED = "MISCONFIGURED"
    UPDATING = "UPDATING"
    MISCONFIGURED_UNAVAILABLE = "MISCONFIGURED_UNAVAILABLE"


class RepositoryLifecycle(StrEnum):
    """State of a link to S3, of either kind; botocore: DataRepositoryLifecycle."""

    CREATING = "CREATING"
    AVAILABLE = "AVAILABLE"
    MISCONFIGURED = "MISCONFIGURED"
    UPDATING = "UPDATING"
    DELETING = "DELETING"
    FAILED = "FAILED"


class RepositoryTaskLifecycle(StrEnum):
    """botocore: DataRepositoryTaskLifecycle."""

    PENDING = "PENDING"
    EXECUTING = "EXECUTING"
    FAILED = "FAILED"
    SUCCEEDED = "SUCCEEDED"
    CANCELED = "CANCELED"
    CANCELING = "CANCELING"


class Readiness(StrEnum):
    """What a state means for who waits."""

    PENDING = "pending"
    READY = "ready"
    BROKEN = "broken"
    GOING = "going"


def readiness(lifecycle: FileSystemLifecycle | RepositoryLifecycle) -> Readiness:
    """Return whether a file system or link can be used, may come to it, or never will."""
    match lifecycle:
        case FileSystemLifecycle.AVAILABLE | RepositoryLifecycle.AVAILABLE:
            return Readiness.READY
        case FileSystemLifecycle.UPDATING | RepositoryLifecycle.UPDATING:
            return Readiness.READY
        case FileSystemLifecycle.CREATING | RepositoryLifecycle.CREATING:
            return Readiness.PENDING
        case FileSystemLifecycle.DELETING | RepositoryLifecycle.DELETING:
            return Readiness.GOING
        case FileSystemLifecycle.FAILED | RepositoryLifecycle.FAILED:
            return Readiness.BROKEN
        case FileSystemLifecycle.MISCONFIGURED | RepositoryLifecycle.MISCONFIGURED:
            return Readiness.BROKEN
        case FileSystemLifecycle.MISCONFIGURED_UNAVAILABLE:
            return Readiness.BROKEN
        case _:
            assert_never(lifecycle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A directory of a file system and the S3 prefix behind it; an ImportPath has no `association_id`."""

    association_id: str | None
    file_system_path: str
    uri: str
    lifecycle: RepositoryLifecycle
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """A file system as FSx describes it."""

    file_system_id: str
    lifecycle: FileSystemLifecycle
    mount_name: str
    dns_name: str
    deployment_type: str
    storage_type: str
    storage_capacity_gib: int
    """0 for INTELLIGENT_TIERING, which has no size."""
    per_unit_storage_throughput: int | None
    type_version: str
    subnet_ids: tuple[str, ...]
    tags: Mapping[str, str]
    created_at: float
    """Unix time."""
    failure: str = ""
    legacy_link: Link | None = None

    def data_source(self, path: str = DATASET_PATH, access: str = "ro") -> dict[str, Any]:
        """Return the DataSource of a training channel: the path begins with the mount name, then the link's.

        SageMaker checks no part of it before the instances have started.
        """
        return {
            "FileSystemDataSource": {
                "FileSystemId": self.file_system_id,
                "FileSystemType": "FSxLustre",
                "FileSystemAccessMode": access,
                "DirectoryPath": f"/{self.mount_name}{path}".rstrip("/"),
            }
        }


@dataclass(frozen=True, slots=True)
class Attach:
    """Go on with a file system that is there; `surplus` are further ones of ours, which must go."""

    file_system: FileSystem
    surplus: tuple[FileSystem, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """Make a file system; the token makes the same call twice harmless."""

    token: str


def next_step(identity: TaskIdentity, found: Sequence[FileSystem]) -> Attach | Create:
    """Follow the oldest living file system of this generation, else make the next one.

    Tags come before the token: FSx forgets a token after some minutes, and cannot look one up.
    """
    own = [each for each in found if each.tags.get(NAME_TAG) == identity.base_name]
    alive = sorted(
        (each for each in own if readiness(each.lifecycle) in (Readiness.READY, Readiness.PENDING)),
        key=lambda each: (each.created_at, each.file_system_id),
    )
    if alive:
        return Attach(alive[0], tuple(alive[1:]))
    return Create(identity.attempt_name(len(own) + 1))


def made_by(identity: TaskIdentity, tags: Mapping[str, str], *, any_map_index: bool = False) -> bool:
    """Return whether these tags are from this task instance, in whichever generation.

    Rebuilds the name, so that another Airflow deployment with the same DAG, run and task is told apart.
    """
    try:
        generation, map_index = int(tags["airflow:generation"]), int(tags["airflow:map_index"])
    except (KeyError, ValueError):
        return False
    if map_index != identity.map_index and not any_map_index:
        return False
    rebuilt = replace(identity, generation=generation, map_index=map_index)
    return rebuilt.base_name == tags.get(NAME_TAG)


def creation_seconds(capacity_gib: int) -> float:
    """Return how long FSx takes to create a file system: a fit through measured creations of 2024."""
    return 454 + 0.00218 * capacity_gib


def creation_timeout_seconds(capacity_gib: int) -> float:
    """Return when to stop waiting: three times the usual, at least half an hour."""
    return max(1800.0, 3 * creation_seconds(capacity_gib))
