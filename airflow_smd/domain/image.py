"""A training image: what goes in, the Dockerfile that says so, and a tag made from both."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import Any

from airflow_smd.domain.image_problems import (
    context_problems,
    dockerfile_problems,
    known_fields,
    recipe_problems,
)
from airflow_smd.errors import Problem

CODE_DIRECTORY = "/opt/ml/code"
"""Where the training toolkit looks for the user's code (seed, "Extend a prebuilt container")."""
_SCHEME = b"airflow-smd image 1"
"""Part of every tag: raised when the same input would no longer give the same image."""
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_ECR_HOST = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFile:
    """One file of the build context."""

    path: str
    """Relative, with `/`."""
    content: bytes = field(repr=False)
    executable: bool = False

    @property
    def mode(self) -> int:
        """Return the permissions it has in the image; only the executable bit of the original is kept."""
        return 0o755 if self.executable else 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecipe:
    """What a training image is made from.

    Either a base image with additions, extended as AWS prescribes, or a Dockerfile of one's own.
    """

    base_image: str = ""
    """The image to extend, for example a Deep Learning Container's URI; empty with `dockerfile`."""
    apt: tuple[str, ...] = ()
    """Debian packages: `git` or `git=1:2.39.5-0`."""
    pip: tuple[str, ...] = ()
    """Python requirements: `torchmetrics==1.4.0`."""
    requirements: str = ""
    """A requirements file in the context."""
    entry_point: str = ""
    """The training script in the context; becomes SAGEMAKER_PROGRAM."""
    dockerfile: str = ""
    """A Dockerfile in the context, used as it is instead of all of the above."""
    build_args: Mapping[str, str] = field(default_factory=dict)
    """Values of the Dockerfile's ARGs; visible in the image's history, so never secrets."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> tuple[ImageRecipe, list[Problem]]:
        """Return the recipe that plain arguments mean, and which of them mean nothing."""
        known, problems = known_fields("recipe", raw, [item.name for item in fields(cls)])
        values: dict[str, Any] = {}
        for name, value in known.items():
            if name in ("apt", "pip"):
                lines = value.split("\n") if isinstance(value, str) else value
                values[name] = tuple(str(line).strip() for line in lines or () if str(line).strip())
            elif name == "build_args":
                values[name] = {str(key): str(item) for key, item in (value or {}).items()}
            else:
                values[name] = str(value or "")
        return cls(**values), problems


@dataclass(frozen=True, kw_only=True)
class ImagePlan:
    """A recipe with its context: everything that decides what the image is."""

    recipe: ImageRecipe
    files: tuple[ContextFile, ...]

    @cached_property
    def dockerfile(self) -> str:
        """Return the text of the Dockerfile."""
        if self.recipe.dockerfile:
            by_path = {file.path: file.content for file in self.files}
            return by_path.get(self.recipe.dockerfile, b"").decode(errors="replace")
        return render(self.recipe, has_code=bool(self.files))

    def problems(self) -> list[Problem]:
        """Return everything that is wrong with recipe and context."""
        found = recipe_problems(self.recipe) + context_problems(self.recipe, self.files)
        if self.recipe.dockerfile and not any(problem.field == "recipe.dockerfile" for problem in found):
            found += dockerfile_problems(self.recipe, self.dockerfile, self.files)
        return found

    @cached_property
    def tag(self) -> str:
        """Return the image's tag: equal for equal content, whoever builds it and when."""
        digest = hashlib.sha256(_SCHEME)
        for name, value in (
            ("dockerfile", self.dockerfile.encode()),
            ("base", self.recipe.base_image.encode()),
            ("arguments", json.dumps(dict(self.recipe.build_args), sort_keys=True).encode()),
        ):
            digest.update(f"{name} {len(value)}\n".encode() + value)
        for file in sorted(self.files, key=lambda file: file.path):
            content = hashlib.sha256(file.content).hexdigest()
            digest.update(f"file {json.dumps(file.path)} {file.mode:o} {content}\n".encode())
        return digest.hexdigest()[:40]

    def pack(self) -> bytes:
        """Return the build context as a zip, byte for byte the same for the same content.

        Code of an extended image lies under `code/`, so that a file named Dockerfile stays what it is.
        """
        members = [("Dockerfile.airflow-smd", 0o644, self.dockerfile.encode())]
        if self.recipe.dockerfile:
            members += [(file.path, file.mode, file.content) for file in self.files]
        else:
            members += [(f"code/{file.path}", file.mode, file.content) for file in self.files]
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, mode, content in sorted(members):
                member = zipfile.ZipInfo(path, _ZIP_TIME)
                member.compress_type = zipfile.ZIP_DEFLATED
                member.external_attr = (0o100000 | mode) << 16
                archive.writestr(member, content)
        return packed.getvalue()

    def registries(self) -> tuple[str, ...]:
        """Return the ECR hosts that base images are pulled from; CodeBuild has to log in to each."""
        hosts = {match[0]: None for match in _ECR_HOST.finditer(self.dockerfile)}
        return tuple(hosts)


def render(recipe: ImageRecipe, *, has_code: bool) -> str:
    """Return the Dockerfile that extends a prebuilt container, what changes most often last.

    So that new code reuses the layers of the packages, and a new Python package those of Debian's.
    """
    steps = [f"FROM {recipe.base_image}"]
    if recipe.apt:
        packages = " ".join(sorted(map(shlex.quote, recipe.apt)))
        steps.append(
            "RUN apt-get update \\\n"
            f" && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {packages} \\\n"
            " && rm -rf /var/lib/apt/lists/*"
        )
    if recipe.requirements:
        steps.append(
            f"COPY {_json('code/' + recipe.requirements, '/tmp/requirements.txt')}\n"  # noqa: S108 - in the image
            "RUN pip install --no-cache-dir -r /tmp/requirements.txt"
        )
    if recipe.pip:
        steps.append(f"RUN pip install --no-cache-dir {' '.join(map(shlex.quote, recipe.pip))}")
    environment = [
        f'ENV PATH="{CODE_DIRECTORY}:${{PATH}}"',
        f"ENV SAGEMAKER_SUBMIT_DIRECTORY={CODE_DIRECTORY}",
    ]
    if recipe.entry_point:
        environment.append(f"ENV SAGEMAKER_PROGRAM={shlex.quote(recipe.entry_point)}")
    steps.append("\n".join(environment))
    if has_code:
        steps.append(f"COPY code {CODE_DIRECTORY}")
    return "\n\n".join(steps) + "\n"


def _json(*words: str) -> str:
    return json.dumps(words)


class BuildStatus(StrEnum):
    """What CodeBuild says of a build (botocore: StatusType)."""

    IN_PROGRESS = "IN_PROGRESS"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    FAULT = "FAULT"
    TIMED_OUT = "TIMED_OUT"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuild:
    """One build as CodeBuild shows it."""

    build_id: str
    status: BuildStatus
    phase: str
    """The phase that failed, else the current one."""
    reason: str = ""
    """CodeBuild's words about the failed phase."""
    name: str = ""
    """Which task generation started it; empty if it was not ours."""
    tag: str = ""
    seconds: float = 0.0
    log_group: str = ""
    log_stream: str = ""
    link: str = ""

    @property
    def running(self) -> bool:
        """Tell whether it still goes on, and costs."""
        return self.status is BuildStatus.IN_PROGRESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """Wait for a build that is already there."""

    build_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a build; CodeBuild answers a second start with the same token with the first build."""

    token: str
    stop: tuple[str, ...] = ()
    """Builds of ours that still build an older content."""


def next_build(name: str, tag: str, earlier: Sequence[ImageBuild]) -> Follow | Start:
    """Follow this task's running build of the same content, else start the next attempt."""
    ours = [build for build in earlier if build.name == name]
    for build in ours:
        if build.running and build.tag == tag:
            return Follow(build_id=build.build_id)
    attempt = 1 + sum(build.tag == tag for build in ours)
    return Start(
        token=f"{name}-{tag[:12]}-a{attempt}",
        stop=tuple(build.build_id for build in ours if build.running),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """How CodeBuild builds; minutes within CodeBuild's 5 to 2160."""

    project: str = ""
    """A CodeBuild project of one's own; empty: one is made with `role_arn`."""
    role_arn: str = ""
    """The service role of the project that is made."""
    compute_type: str = "BUILD_GENERAL1_LARGE"
    image: str = "aws/codebuild/amazonlinux-x86_64-standard:5.0"
    timeout_minutes: int = 60
    queued_timeout_minutes: int = 30

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> tuple[BuildSettings, list[Problem]]:
        """Return the settings that plain arguments mean, and which of them mean nothing."""
        known, problems = known_fields("build", raw, [item.name for item in fields(cls)])
        values: dict[str, Any] = {}
        for name, value in known.items():
            if not name.endswith("_minutes"):
                values[name] = str(value or "")
            elif str(value).isdigit():
                values[name] = int(value)
            else:
                message = "A whole number of minutes is needed."
                problems.append(
                    Problem(
                        rule="minutes",
                        field=f"build.{name}",
                        value=value,
                        message=message,
                        remedy="Change it.",
                    )
                )
        return cls(**values), problems

    @property
    def project_name(self) -> str:
        """Return the project's name; of one that is made it names the content, so it never changes."""
        if self.project:
            return self.project
        key = "\0".join((self.role_arn, self.compute_type, self.image))
        return f"airflow-smd-image-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def build_spec(plan: ImagePlan, target: str, region: str) -> str:
    """Return the buildspec (JSON, which is YAML) that builds `plan` and pushes it as `target`.

    Args:
        plan: the image.
        target: `host/repository:tag`.
        region: the target's Region.
    """
    login = "aws ecr get-login-password --region {} | docker login --username AWS --password-stdin {}"
    logins = {target.partition("/")[0]: region}
    logins |= {host: _ECR_HOST.fullmatch(host)[2] for host in plan.registries()}  # type: ignore[index]
    arguments = [
        f"--build-arg {shlex.quote(f'{name}={value}')}"
        for name, value in sorted(plan.recipe.build_args.items())
    ]
    build = ["docker build", "--file Dockerfile.airflow-smd", f"--tag {target}", *arguments, "."]
    phases = {
        "pre_build": {"commands": [login.format(region, host) for host, region in logins.items()]},
        # both in one phase, whose commands end at the first that fails: a broken image is never pushed
        "build": {"commands": [" ".join(build), f"docker push {target}"]},
    }
    return json.dumps({"version": 0.2, "phases": phases}, indent=1)
