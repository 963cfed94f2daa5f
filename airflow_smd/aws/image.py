"""Images in ECR, build contexts in S3, and builds in CodeBuild."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from airflow_smd.aws.addresses import split_s3_uri
from airflow_smd.domain.image import BuildSettings, BuildStatus, ImageBuild
from airflow_smd.errors import AccessRefused, Problem, UnexpectedAnswer, refuse

NAME_VARIABLE, TAG_VARIABLE, TAGS_VARIABLE = "AIRFLOW_SMD_NAME", "AIRFLOW_SMD_TAG", "AIRFLOW_SMD_TAGS"
"""A build has no tags, so who started it, and for which content, stands in its environment."""
_DOMAINS = {"aws-cn": "amazonaws.com.cn"}
_EXPIRE_UNTAGGED = (
    '{"rules":[{"rulePriority":1,"description":"What no tag names is a leftover","selection":'
    '{"tagStatus":"untagged","countType":"sinceImagePushed","countUnit":"days","countNumber":14},'
    '"action":{"type":"expire"}}]}'
)


def _code(error: ClientError) -> str:
    code: str = error.response["Error"]["Code"]
    return code


@contextmanager
def _allowed(what: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        if _code(error) in ("AccessDenied", "AccessDeniedException", "403", "UnauthorizedOperation"):
            raise AccessRefused(what, error.response["Error"]["Message"]) from error
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedImage:
    """An image in ECR."""

    repository_uri: str
    tag: str
    digest: str

    @property
    def pinned_uri(self) -> str:
        """Return the URI that can only ever mean this image."""
        return f"{self.repository_uri}@{self.digest}"

    @property
    def tag_uri(self) -> str:
        """Return the URI for people."""
        return f"{self.repository_uri}:{self.tag}"


class ImageRepository:
    """One ECR repository of the connection's account.

    Args:
        client: a boto3 `ecr` client.
        name: the repository's name.
    """

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    @property
    def region(self) -> str:
        """Return the Region that the calls go to."""
        name: str = self._client.meta.region_name
        return name

    def find(self, tag: str) -> PublishedImage | None:
        """Return the image with this tag, None if there is none or no repository. One call."""
        with _allowed(f"look into the ECR repository {self._name}"):
            try:
                answer = self._client.batch_get_image(repositoryName=self._name, imageIds=[{"imageTag": tag}])
            except ClientError as error:
                if _code(error) == "RepositoryNotFoundException":
                    return None
                raise
        for image in answer["images"]:
            uri = self._uri(image["registryId"])
            return PublishedImage(repository_uri=uri, tag=tag, digest=image["imageId"]["imageDigest"])
        return None

    def ensure(self, tags: Mapping[str, str]) -> str:
        """Return the repository's URI; make it if need be: immutable tags, scanned, leftovers expire."""
        with _allowed(f"make the ECR repository {self._name}"):
            try:
                made = self._client.create_repository(
                    repositoryName=self._name,
                    imageTagMutability="IMMUTABLE",
                    imageScanningConfiguration={"scanOnPush": True},
                    tags=[{"Key": key, "Value": value} for key, value in tags.items()],
                )
            except ClientError as error:
                if _code(error) != "RepositoryAlreadyExistsException":
                    raise
                found = self._client.describe_repositories(repositoryNames=[self._name])
                return str(found["repositories"][0]["repositoryUri"])
            self._client.put_lifecycle_policy(repositoryName=self._name, lifecyclePolicyText=_EXPIRE_UNTAGGED)
        return str(made["repository"]["repositoryUri"])

    def _uri(self, account: str) -> str:
        domain = _DOMAINS.get(self._client.meta.partition, "amazonaws.com")
        return f"{account}.dkr.ecr.{self.region}.{domain}/{self._name}"


class BuildContexts:
    """Keeps build contexts under a prefix of S3, each under the tag of the image it makes.

    Args:
        client: a boto3 `s3` client.
        work_uri: `s3://bucket/prefix`.
    """

    def __init__(self, client: Any, work_uri: str) -> None:
        self._client = client
        self._bucket, self._prefix = split_s3_uri(work_uri)

    def location(self, tag: str) -> str:
        """Return where the context lies, as CodeBuild spells it: `bucket/key`."""
        return f"{self._bucket}/{self._key(tag)}"

    def has(self, tag: str) -> bool:
        """Tell whether the context is there; a bucket that is missing is refused."""
        with _allowed(f"read s3://{self.location(tag)}"):
            try:
                self._client.head_object(Bucket=self._bucket, Key=self._key(tag))
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                    return False
                raise
        return True

    def put(self, tag: str, packed: bytes) -> None:
        """Upload a packed context."""
        with _allowed(f"write s3://{self.location(tag)}"):
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._key(tag), Body=packed)
            except ClientError as error:
                if _code(error) == "NoSuchBucket":
                    message = "There is no such bucket."
                    remedy = "Make it, or correct the URI."
                    problem = Problem(
                        rule="no-bucket", field="work_uri", value=self._bucket, message=message, remedy=remedy
                    )
                    refuse([problem])
                raise

    def _key(self, tag: str) -> str:
        return f"{self._prefix}image-context/{tag}.zip"


class ImageBuilds:
    """The builds of one CodeBuild project.

    Args:
        client: a boto3 `codebuild` client.
        logs: a boto3 `logs` client.
        project: the project's name.
    """

    def __init__(self, client: Any, logs: Any, project: str) -> None:
        self._client = client
        self._logs = logs
        self._project = project

    def ensure_project(self, settings: BuildSettings, tags: Mapping[str, str]) -> None:
        """Make the project unless it is there; a project that was given by name is left alone."""
        if settings.project:
            return
        with _allowed(f"make the CodeBuild project {self._project}"):
            if self._client.batch_get_projects(names=[self._project])["projects"]:
                return
            try:
                self._client.create_project(
                    name=self._project,
                    description="Builds training images for airflow-smd; its name says what it is made of.",
                    source={"type": "NO_SOURCE", "buildspec": '{"version": 0.2, "phases": {}}'},
                    artifacts={"type": "NO_ARTIFACTS"},
                    # the docker daemon's own layers, kept by CodeBuild for as long as it has the machine
                    cache={"type": "LOCAL", "modes": ["LOCAL_DOCKER_LAYER_CACHE"]},
                    environment={
                        "type": "LINUX_CONTAINER",
                        "image": settings.image,
                        "computeType": settings.compute_type,
                        "privilegedMode": True,
                    },
                    serviceRole=settings.role_arn,
                    tags=[{"key": key, "value": value[:255]} for key, value in tags.items()],
                )
            except ClientError as error:
                if _code(error) != "ResourceAlreadyExistsException":
                    raise

    def start(
        self,
        *,
        name: str,
        tag: str,
        token: str,
        location: str,
        build_spec: str,
        settings: BuildSettings,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Start a build and return its id; within five minutes the same token gives the same build.

        `tags` say which run pays for it.
        """
        variables = {NAME_VARIABLE: name, TAG_VARIABLE: tag, TAGS_VARIABLE: json.dumps(dict(tags or {}))}
        with _allowed(f"start a build of the CodeBuild project {self._project}"):
            try:
                answer = self._client.start_build(
                    projectName=self._project,
                    idempotencyToken=token,
                    sourceTypeOverride="S3",
                    sourceLocationOverride=location,
                    buildspecOverride=build_spec,
                    privilegedModeOverride=True,
                    timeoutInMinutesOverride=settings.timeout_minutes,
                    queuedTimeoutInMinutesOverride=settings.queued_timeout_minutes,
                    environmentVariablesOverride=[
                        {"name": key, "value": value, "type": "PLAINTEXT"} for key, value in variables.items()
                    ],
                )
            except ClientError as error:
                if _code(error) == "ResourceNotFoundException":
                    refuse([_no_project(self._project)])
                raise
        build_id: str = answer["build"]["id"]
        return build_id

    def look(self, build_id: str) -> ImageBuild | None:
        """Return the build as it stands, None if CodeBuild does not know it (it forgets after a year)."""
        return next(iter(self._get([build_id])), None)

    def named(self, name: str) -> list[ImageBuild]:
        """Return this task generation's builds among the project's newest hundred, oldest first."""
        try:
            answer = self._client.list_builds_for_project(projectName=self._project, sortOrder="DESCENDING")
        except ClientError as error:
            if _code(error) == "ResourceNotFoundException":
                return []
            raise
        builds = self._get(answer["ids"][:100])
        return [build for build in reversed(builds) if build.name == name]

    def stop(self, build_id: str) -> None:
        """End a build; one that is over or gone is left alone."""
        try:
            self._client.stop_build(id=build_id)
        except ClientError as error:
            if _code(error) != "ResourceNotFoundException":
                raise

    def log_lines(self, build: ImageBuild, token: str | None = None) -> tuple[list[str], str | None]:
        """Return what the build wrote after `token`, and the token to go on from."""
        lines: list[str] = []
        while build.log_stream:
            place = {"logGroupName": build.log_group, "logStreamName": build.log_stream}
            try:
                page = self._logs.get_log_events(
                    **place, startFromHead=True, **({"nextToken": token} if token else {})
                )
            except ClientError as error:
                if _code(error) == "ResourceNotFoundException":
                    break
                raise
            lines += [event["message"].rstrip("\n") for event in page["events"]]
            if page["nextForwardToken"] == token:
                break
            token = page["nextForwardToken"]
        return lines, token

    def log_tail(self, build: ImageBuild, count: int) -> list[str]:
        """Return the last `count` lines that the build wrote; [] if its log cannot be read."""
        if not build.log_stream:
            return []
        try:
            page = self._logs.get_log_events(
                logGroupName=build.log_group, logStreamName=build.log_stream, limit=count
            )
        except ClientError:
            return []  # the build's own failure must not hide behind a permission to read logs
        return [event["message"].rstrip("\n") for event in page["events"]]

    def _get(self, ids: Sequence[str]) -> list[ImageBuild]:
        if not ids:
            return []
        found = {build["id"]: build for build in self._client.batch_get_builds(ids=list(ids))["builds"]}
        return [_build(found[build_id]) for build_id in ids if build_id in found]


def _no_project(project: str) -> Problem:
    message = "There is no such CodeBuild project."
    remedy = "Correct the name, or leave `project` out and give `codebuild_role_arn`."
    return Problem(rule="no-project", field="build.project", value=project, message=message, remedy=remedy)


def _build(answer: Mapping[str, Any]) -> ImageBuild:
    try:
        status = BuildStatus(answer["buildStatus"])
    except ValueError as error:
        raise UnexpectedAnswer(f"{answer['id']} has the status {answer['buildStatus']!r}") from error
    broken = [
        phase
        for phase in answer.get("phases", [])
        if phase.get("phaseStatus") not in (None, "SUCCEEDED", "IN_PROGRESS")
    ]
    contexts = broken[0].get("contexts", []) if broken else []
    variables = {
        item["name"]: item["value"] for item in answer.get("environment", {}).get("environmentVariables", [])
    }
    logs = answer.get("logs", {})
    started, ended = answer.get("startTime"), answer.get("endTime")
    return ImageBuild(
        build_id=answer["id"],
        status=status,
        phase=broken[0]["phaseType"] if broken else answer.get("currentPhase", ""),
        reason=" ".join(context["message"] for context in contexts if context.get("message")),
        name=variables.get(NAME_VARIABLE, ""),
        tag=variables.get(TAG_VARIABLE, ""),
        seconds=(ended - started).total_seconds() if started and ended else 0.0,
        log_group=logs.get("groupName") or "",
        log_stream=logs.get("streamName") or "",
        link=logs.get("deepLink") or "",
    )
