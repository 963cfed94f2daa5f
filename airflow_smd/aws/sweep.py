"""Everything in one account and Region that carries our tags and is billed at this moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, assert_never

from botocore.exceptions import ClientError

from airflow_smd.aws.image import NAME_VARIABLE, TAGS_VARIABLE, ImageBuilds
from airflow_smd.aws.jobs import NOT_FOUND, error_code
from airflow_smd.aws.lustre import FileSystems
from airflow_smd.aws.processing import ProcessingJobs
from airflow_smd.aws.training import TrainingJobs
from airflow_smd.domain.cost import CostLine, file_system_line, instances_line
from airflow_smd.domain.identity import NAME_TAG, may_be_ours
from airflow_smd.domain.lustre.lifecycle import FileSystemLifecycle
from airflow_smd.domain.lustre.values import LustreConfig
from airflow_smd.domain.sweep import SECONDS_PER_DAY, Kind, Thing
from airflow_smd.errors import FileSystemLate

LONGEST_BUILD_SECONDS = (2160 + 480) * 60
"""Longest timeoutInMinutes and queuedTimeoutInMinutes together (CodeBuild API reference)."""
RUNNING = "InProgress"
"""Of both kinds of jobs (botocore: TrainingJobStatus, ProcessingJobStatus)."""


class BilledThings:
    """What we started and pay for.

    Args:
        fsx: a boto3 `fsx` client.
        sagemaker: a boto3 `sagemaker` client.
        codebuild: a boto3 `codebuild` client.
        pace: is called before each call of SageMaker and CodeBuild, whose lists allow few of them a second.
    """

    def __init__(self, *, fsx: Any, sagemaker: Any, codebuild: Any, pace: Callable[[], None]) -> None:
        self._fsx = fsx
        self._sagemaker = sagemaker
        self._codebuild = codebuild
        self._pace = pace

    def find(self, kind: Kind, *, now: float) -> list[Thing]:
        """Return the things of one kind that carry our tags and are not ending; `now` is Unix time."""
        match kind:
            case Kind.FILE_SYSTEM:
                return list(self._file_systems())
            case Kind.TRAINING_JOB:
                return list(self._jobs(kind, "list_training_jobs", "Training", TrainingJobs))
            case Kind.PROCESSING_JOB:
                return list(self._jobs(kind, "list_processing_jobs", "Processing", ProcessingJobs))
            case Kind.BUILD:
                return list(self._builds(now))
            case _:
                assert_never(kind)

    def remove(self, thing: Thing) -> str:
        """Begin the end of a thing and return its state; what is gone already is no error.

        Raises:
            FileSystemLate: FSx does not delete it yet, since a task or its creation is not over.
        """
        match thing.kind:
            case Kind.FILE_SYSTEM:
                return self._delete(thing.thing_id)
            case Kind.TRAINING_JOB:
                TrainingJobs(self._sagemaker).stop(thing.thing_id)
            case Kind.PROCESSING_JOB:
                ProcessingJobs(self._sagemaker).stop(thing.thing_id)
            case Kind.BUILD:
                ImageBuilds(self._codebuild, None, "").stop(thing.thing_id)
            case _:
                assert_never(thing.kind)
        return "stopping"

    def _delete(self, file_system_id: str) -> str:
        state = FileSystems(self._fsx).remove(file_system_id)
        if state not in (None, FileSystemLifecycle.DELETING):
            raise FileSystemLate(f"{file_system_id} does not go yet: {state}")
        return state or "gone"

    def _file_systems(self) -> Iterator[Thing]:
        for page in self._fsx.get_paginator("describe_file_systems").paginate():
            for found in page["FileSystems"]:
                tags = _tags(found.get("Tags", ()))
                if (
                    found["FileSystemType"] == "LUSTRE"
                    and NAME_TAG in tags
                    and found["Lifecycle"] != FileSystemLifecycle.DELETING
                ):
                    yield Thing(
                        kind=Kind.FILE_SYSTEM,
                        thing_id=found["FileSystemId"],
                        tags=tags,
                        created_at=found["CreationTime"].timestamp(),
                        per_day=_per_day(found, self._fsx.meta.region_name),
                    )

    def _jobs(
        self, kind: Kind, operation: str, prefix: str, jobs: type[TrainingJobs | ProcessingJobs]
    ) -> Iterator[Thing]:
        """Yield our running jobs; asks for the tags only of those whose name looks like ours."""
        described = jobs(self._sagemaker)
        for found in self._running(operation, prefix):
            name = found[f"{prefix}JobName"]
            tags = self._tags_of(found[f"{prefix}JobArn"]) if may_be_ours(name) else {}
            if NAME_TAG not in tags:
                continue
            self._pace()
            run = described.look(name)
            if run is None or run.status != RUNNING:
                continue
            yield Thing(
                kind=kind,
                thing_id=name,
                tags=tags,
                created_at=found["CreationTime"].timestamp(),
                per_day=instances_line(
                    str(kind),
                    instance_type=run.instance_type or "",
                    count=run.instance_count,
                    seconds=SECONDS_PER_DAY,
                    region=described.region,
                ),
            )

    def _running(self, operation: str, prefix: str) -> Iterator[dict[str, Any]]:
        self._pace()
        pages = self._sagemaker.get_paginator(operation).paginate(
            StatusEquals=RUNNING, PaginationConfig={"PageSize": 100}
        )
        for page in pages:
            yield from page[f"{prefix}JobSummaries"]
            self._pace()

    def _tags_of(self, arn: str) -> dict[str, str]:
        self._pace()
        try:
            return _tags(self._sagemaker.list_tags(ResourceArn=arn)["Tags"])
        except ClientError as error:
            if error_code(error) in NOT_FOUND:
                return {}
            raise

    def _builds(self, now: float) -> Iterator[Thing]:
        """Yield our running builds; CodeBuild lists the newest first and keeps them for a year."""
        self._pace()
        for page in self._codebuild.get_paginator("list_builds").paginate(sortOrder="DESCENDING"):
            if not page["ids"]:
                return
            self._pace()
            builds = self._codebuild.batch_get_builds(ids=page["ids"])["builds"]
            for build in builds:
                tags = _tags_of_build(build)
                if build["buildStatus"] == "IN_PROGRESS" and NAME_TAG in tags:
                    yield Thing(
                        kind=Kind.BUILD,
                        thing_id=build["id"],
                        tags=tags,
                        created_at=build["startTime"].timestamp(),
                        per_day=CostLine(
                            what=str(Kind.BUILD),
                            usd=None,
                            basis=f"{build['environment']['computeType']}; no price for it",
                        ),
                    )
            if any(build["startTime"].timestamp() < now - LONGEST_BUILD_SECONDS for build in builds):
                return
            self._pace()


def _tags(listed: Any) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in listed}


def _tags_of_build(build: Mapping[str, Any]) -> dict[str, str]:
    variables = {item["name"]: item["value"] for item in build["environment"].get("environmentVariables", ())}
    if NAME_VARIABLE not in variables:
        return {}
    try:
        tags = dict(json.loads(variables.get(TAGS_VARIABLE, "{}")))
    except (TypeError, ValueError):
        tags = {}
    return {**{str(key): str(value) for key, value in tags.items()}, NAME_TAG: variables[NAME_VARIABLE]}


def _per_day(file_system: Mapping[str, Any], region: str) -> CostLine:
    lustre = file_system.get("LustreConfiguration", {})
    config = LustreConfig(
        deployment_type=lustre.get("DeploymentType", ""),
        storage_type=file_system.get("StorageType", ""),
        storage_capacity_gib=file_system.get("StorageCapacity"),
        per_unit_storage_throughput=lustre.get("PerUnitStorageThroughput"),
        metadata_iops=lustre.get("MetadataConfiguration", {}).get("Iops")
        if lustre.get("MetadataConfiguration", {}).get("Mode") == "USER_PROVISIONED"
        else None,
    )
    return file_system_line(str(Kind.FILE_SYSTEM), config, seconds=SECONDS_PER_DAY, region=region)
