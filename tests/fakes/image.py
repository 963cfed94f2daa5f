"""ECR, S3 and CodeBuild in memory; a Dockerfile's RUN lines decide how its build ends."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from airflow_smd.aws.image import PublishedImage
from airflow_smd.domain.image import BuildSettings, BuildStatus, ImageBuild
from airflow_smd.errors import Problem, refuse

ACCOUNT = "123456789012"


@dataclass(slots=True, kw_only=True)
class FakeWorld:
    """What one account has, shared by its fakes."""

    buckets: set[str] = field(default_factory=lambda: {"bucket"})
    contexts: dict[str, bytes] = field(default_factory=dict)
    repositories: dict[str, dict[str, str]] = field(default_factory=dict)
    """Name -> tag -> digest."""
    projects: set[str] = field(default_factory=set)
    builds: dict[str, ImageBuild] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    targets: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Build -> repository and context location."""
    payers: dict[str, dict[str, str]] = field(default_factory=dict)
    """Build -> tags of the run that pays for it."""
    calls: list[str] = field(default_factory=list)


class FakeImageRepository:
    region = "us-east-1"

    def __init__(self, world: FakeWorld, name: str) -> None:
        self._world = world
        self._name = name

    @property
    def _uri(self) -> str:
        return f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/{self._name}"

    def find(self, tag: str) -> PublishedImage | None:
        self._world.calls.append("find")
        digest = self._world.repositories.get(self._name, {}).get(tag)
        return PublishedImage(repository_uri=self._uri, tag=tag, digest=digest) if digest else None

    def ensure(self, tags: Mapping[str, str]) -> str:
        self._world.calls.append("ensure repository")
        self._world.repositories.setdefault(self._name, {})
        return self._uri


class FakeBuildContexts:
    def __init__(self, world: FakeWorld, work_uri: str) -> None:
        self._world = world
        self._bucket, _, self._prefix = work_uri.removeprefix("s3://").partition("/")

    def location(self, tag: str) -> str:
        return f"{self._bucket}/{self._prefix}/image-context/{tag}.zip"

    def has(self, tag: str) -> bool:
        return self.location(tag) in self._world.contexts

    def put(self, tag: str, packed: bytes) -> None:
        self._world.calls.append("upload")
        if self._bucket not in self._world.buckets:
            refuse([Problem(rule="no-bucket", field="work_uri", value=self._bucket, message="", remedy="")])
        self._world.contexts[self.location(tag)] = packed


class FakeImageBuilds:
    """A build ends at the second look: as the first RUN line that says `exit` or `sleep` demands."""

    def __init__(self, world: FakeWorld, project: str) -> None:
        self._world = world
        self._project = project

    def ensure_project(self, settings: BuildSettings, tags: Mapping[str, str]) -> None:
        if not settings.project:
            self._world.projects.add(self._project)

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
        self._world.calls.append("start")
        if self._project not in self._world.projects:
            refuse([Problem(rule="no-project", field="build.project", value="", message="", remedy="")])
        if token in self._world.tokens:
            return self._world.tokens[token]
        build_id = f"{self._project}:{len(self._world.builds) + 1}"
        self._world.tokens[token] = build_id
        repository = build_spec.partition(f":{tag}")[0].rpartition(".amazonaws.com/")[2]
        self._world.targets[build_id] = (repository, location)
        self._world.payers[build_id] = dict(tags or {})
        self._world.builds[build_id] = ImageBuild(
            build_id=build_id,
            status=BuildStatus.IN_PROGRESS,
            phase="QUEUED",
            name=name,
            tag=tag,
            log_group="group",
            log_stream="stream",
        )
        return build_id

    def look(self, build_id: str) -> ImageBuild | None:
        build = self._world.builds.get(build_id)
        if build and build.running and build.phase == "BUILD":
            return self._end(build)
        if build and build.running:
            self._world.builds[build_id] = replace(build, phase="BUILD")
        return build

    def named(self, name: str) -> list[ImageBuild]:
        return [build for build in self._world.builds.values() if build.name == name]

    def stop(self, build_id: str) -> None:
        build = self._world.builds.get(build_id)
        if build and build.running:
            self._world.builds[build_id] = replace(build, status=BuildStatus.STOPPED, phase="BUILD")

    def log_lines(self, build: ImageBuild, token: str | None = None) -> tuple[list[str], str | None]:
        lines = self._log(build)
        begin = int(token or 0)
        return lines[begin:], str(len(lines))

    def log_tail(self, build: ImageBuild, count: int) -> list[str]:
        return self._log(build)[-count:]

    def end(self, build_id: str, status: BuildStatus) -> None:
        """Let a build end in this way, whatever its Dockerfile says."""
        self._world.builds[build_id] = replace(self._world.builds[build_id], status=status, phase="BUILD")

    def _end(self, build: ImageBuild) -> ImageBuild:
        text = self._dockerfile(build)
        if "sleep" in text:
            return build
        ended = replace(build, status=BuildStatus.SUCCEEDED, phase="COMPLETED", seconds=2.0)
        if "exit" in text:
            reason = "Error while executing command: docker build. Reason: exit status 1"
            ended = replace(build, status=BuildStatus.FAILED, phase="BUILD", reason=reason, seconds=2.0)
        else:
            repository, _ = self._world.targets[build.build_id]
            digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
            self._world.repositories[repository].setdefault(build.tag, digest)
        self._world.builds[build.build_id] = ended
        return ended

    def _log(self, build: ImageBuild) -> list[str]:
        return self._dockerfile(build).splitlines()

    def _dockerfile(self, build: ImageBuild) -> str:
        packed = self._world.contexts[self._world.targets[build.build_id][1]]
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            return archive.read("Dockerfile.airflow-smd").decode()
