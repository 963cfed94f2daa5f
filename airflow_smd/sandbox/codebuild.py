# ruff: noqa: D102 - the actions are documented by AWS
"""AWS CodeBuild in the sandbox: builds that run, and the registry that they push to."""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from moto.codebuild import urls
from moto.codebuild.exceptions import (
    InvalidInputException,
    ResourceAlreadyExistsException,
    ResourceNotFoundException,
)
from moto.codebuild.responses import CodeBuildResponse
from moto.ecr.models import ecr_backends

from airflow_smd.sandbox.codebuild_run import FAULT, LOCK, STOPPED, BuildRun
from airflow_smd.sandbox.oci_images import ImageFinder
from airflow_smd.sandbox.registry import Blobs, EcrCatalogue, Registry
from airflow_smd.sandbox.runtime import ACCOUNT_ID, Runtime

TOKEN_SECONDS = 300
"""How long StartBuild remembers an idempotency token (CodeBuild API reference)."""
_PROJECT_DEFAULTS = {"timeoutInMinutes": 60, "queuedTimeoutInMinutes": 480, "cache": {"type": "NO_CACHE"}}
_PROJECT_FIELDS = (
    "description", "source", "artifacts", "environment", "serviceRole", "timeoutInMinutes",
    "queuedTimeoutInMinutes", "tags", "cache", "logsConfig", "vpcConfig", "sourceVersion", "encryptionKey",
)  # fmt: skip
_OVERRIDES = {
    "sourceTypeOverride": ("source", "type"),
    "sourceLocationOverride": ("source", "location"),
    "buildspecOverride": ("source", "buildspec"),
    "environmentTypeOverride": ("environment", "type"),
    "imageOverride": ("environment", "image"),
    "computeTypeOverride": ("environment", "computeType"),
    "privilegedModeOverride": ("environment", "privilegedMode"),
}
_TOP_OVERRIDES = {
    "timeoutInMinutesOverride": "timeoutInMinutes",
    "queuedTimeoutInMinutesOverride": "queuedTimeoutInMinutes",
    "serviceRoleOverride": "serviceRole",
    "cacheOverride": "cache",
    "artifactsOverride": "artifacts",
    "encryptionKeyOverride": "encryptionKey",
}
_BUILD_FIELDS = ("artifacts", "cache", "serviceRole", "timeoutInMinutes", "queuedTimeoutInMinutes")


def register(runtime: Runtime) -> None:
    """Answer CodeBuild calls and `/v2/`, and tell the other services what an image URI means."""
    catalogue = EcrCatalogue(ecr_backends[ACCOUNT_ID][runtime.settings.region], runtime.changing)
    blobs = Blobs(runtime.directory("registry"))
    runtime.routes["/v2/"] = Registry(blobs, catalogue)
    runtime.image = ImageFinder(runtime.directory("registry") / "layers", blobs, catalogue).find
    runtime.own_state.add("codebuild")
    service = Service(runtime)
    runtime.at_stop(service.stop)
    Responses.service = service
    urls.url_paths["{0}/$"] = Responses.dispatch


class Service:
    """Projects and builds, each a file."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._directory = runtime.directory("codebuild")
        self._runs: dict[str, BuildRun] = {}
        self.projects: dict[str, dict[str, Any]] = self._load("projects")
        self.builds: dict[str, dict[str, Any]] = self._load("builds")
        self._shims = _write_shims(self._directory / "bin")
        for build in self.builds.values():
            if not build["buildComplete"]:
                # the sandbox was killed under it
                build |= {"buildStatus": "FAULT", "currentPhase": "COMPLETED", "buildComplete": True}
                build |= {"endTime": time.time()}
                self.save("builds", build)

    def save(self, kind: str, record: dict[str, Any]) -> None:
        """Write one project or build through to disk."""
        folder = self._directory / kind
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{record['arn'].rpartition('/')[2].replace(':', '@')}@{_region(record['arn'])}.json"
        part = path.with_suffix(f".{uuid.uuid4().hex[:8]}.part")
        part.write_text(json.dumps(record))
        part.replace(path)

    def forget_project(self, arn: str) -> None:
        """Delete a project, as if it had never been."""
        if record := self.projects.pop(arn, None):
            path = self._directory / "projects" / f"{record['name']}@{_region(arn)}.json"
            path.unlink(missing_ok=True)

    def start(self, project: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
        """Start a build, or return the one that the same token has started."""
        token = request.get("idempotencyToken")
        for build in list(self.builds.values()):
            if token and build["_token"] == token and time.time() - build["startTime"] < TOKEN_SECONDS:
                if build["_request"] != request:
                    raise InvalidInputException("Parameter mismatch: the idempotency token was used before")
                return build
        build = _new_build(
            project, request, 1 + sum(b["_project"] == project["arn"] for b in self.builds.values())
        )
        self.builds[build["arn"]] = build
        self.save("builds", build)
        run = BuildRun(self._runtime, build, lambda: self.save("builds", build), self._shims)
        self._runs[build["arn"]] = run
        run.thread.start()
        if fault := self._runtime.faults.take("fail", service="codebuild", operation="StartBuild", **request):
            timer = threading.Timer(
                fault.options["after_seconds"], run.end, [FAULT, fault.options["message"]]
            )
            timer.daemon = True
            timer.start()
        return build

    def stop_build(self, build: dict[str, Any]) -> None:
        """End a running build and wait until it is over; one that is over is left alone."""
        run = self._runs.get(build["arn"])
        if run and not build["buildComplete"]:
            run.end(STOPPED)
            run.thread.join(10)

    def stop(self) -> None:
        """End all builds."""
        for build in list(self.builds.values()):
            self.stop_build(build)

    def _load(self, kind: str) -> dict[str, dict[str, Any]]:
        records = [json.loads(path.read_text()) for path in (self._directory / kind).glob("*.json")]
        return {record["arn"]: record for record in records}


class Responses(CodeBuildResponse):
    """One method an API action; moto finds it by the action's name in snake case."""

    service: Service

    def _request(self) -> dict[str, Any]:
        request: dict[str, Any] = json.loads(self.body)
        return request

    def _arn(self, kind: str, name: str) -> str:
        return (
            name if name.startswith("arn:") else f"arn:aws:codebuild:{self.region}:{ACCOUNT_ID}:{kind}/{name}"
        )

    def _project(self, name: str) -> dict[str, Any]:
        arn = self._arn("project", name)
        if arn not in self.service.projects:
            raise ResourceNotFoundException(f"Project cannot be found: {arn}")
        return self.service.projects[arn]

    def create_project(self) -> str:
        request = self._request()
        arn = self._arn("project", request["name"])
        if arn in self.service.projects:
            raise ResourceAlreadyExistsException(f"Project already exists: {arn}")
        if not request["serviceRole"].startswith(f"arn:aws:iam::{ACCOUNT_ID}:role/"):
            message = "Invalid service role: Service role account ID does not match caller's account"
            raise InvalidInputException(message)
        project = {**_PROJECT_DEFAULTS, "name": request["name"], "arn": arn, "created": time.time()}
        return self._put(project, request)

    def update_project(self) -> str:
        request = self._request()
        return self._put(self._project(request["name"]), request)

    def _put(self, project: dict[str, Any], request: dict[str, Any]) -> str:
        project = project | {key: request[key] for key in _PROJECT_FIELDS if key in request}
        project["lastModified"] = time.time()
        self.service.projects[project["arn"]] = project
        self.service.save("projects", project)
        return json.dumps({"project": project})

    def delete_project(self) -> str:
        self.service.forget_project(self._arn("project", self._request()["name"]))
        return "{}"

    def batch_get_projects(self) -> str:
        names = self._request()["names"]
        found = {name: self.service.projects.get(self._arn("project", name)) for name in names}
        missing = [name for name, project in found.items() if not project]
        return json.dumps({"projects": [p for p in found.values() if p], "projectsNotFound": missing})

    def list_projects(self) -> str:
        names = sorted(p["name"] for arn, p in self.service.projects.items() if _region(arn) == self.region)
        return json.dumps({"projects": names})

    def start_build(self) -> str:
        request = self._request()
        project = self._project(request["projectName"])
        return json.dumps({"build": _shown(self.service.start(project, request))})

    def batch_get_builds(self) -> str:
        ids = self._request()["ids"]
        found = {build_id: self.service.builds.get(self._arn("build", build_id)) for build_id in ids}
        missing = [build_id for build_id, build in found.items() if not build]
        return json.dumps({"builds": [_shown(b) for b in found.values() if b], "buildsNotFound": missing})

    def stop_build(self) -> str:
        arn = self._arn("build", self._request()["id"])
        if arn not in self.service.builds:
            raise ResourceNotFoundException(f"Build {arn} does not exist")
        self.service.stop_build(self.service.builds[arn])
        return json.dumps({"build": _shown(self.service.builds[arn])})

    def list_builds(self) -> str:
        return self._listed(lambda _: True)

    def list_builds_for_project(self) -> str:
        project = self._project(self._request()["projectName"])
        return self._listed(lambda build: build["_project"] == project["arn"])

    def _listed(self, wanted: Any) -> str:
        request = self._request()
        builds = [b for arn, b in self.service.builds.items() if _region(arn) == self.region and wanted(b)]
        newest_first = request.get("sortOrder", "DESCENDING") == "DESCENDING"
        ids = [b["id"] for b in sorted(builds, key=lambda b: float(b["startTime"]), reverse=newest_first)]
        begin = int(request.get("nextToken") or 0)
        more = {"nextToken": str(begin + 100)} if len(ids) > begin + 100 else {}
        return json.dumps({"ids": ids[begin : begin + 100], **more})


def _region(arn: str) -> str:
    return arn.split(":")[3]


def _shown(build: dict[str, Any]) -> dict[str, Any]:
    with LOCK:
        shown: dict[str, Any] = json.loads(json.dumps(build))
    return {key: value for key, value in shown.items() if not key.startswith("_")}


def _new_build(project: dict[str, Any], request: dict[str, Any], number: int) -> dict[str, Any]:
    effective = json.loads(json.dumps(project))
    for name, (section, key) in _OVERRIDES.items():
        if name in request:
            effective[section][key] = request[name]
    for name, key in _TOP_OVERRIDES.items():
        if name in request:
            effective[key] = request[name]
    variables = {item["name"]: item for item in effective["environment"].get("environmentVariables", [])}
    variables |= {item["name"]: item for item in request.get("environmentVariablesOverride", [])}
    effective["environment"]["environmentVariables"] = [
        {"type": "PLAINTEXT", **v} for v in variables.values()
    ]
    stream, region, now = str(uuid.uuid4()), _region(project["arn"]), time.time()
    group = f"/aws/codebuild/{project['name']}"
    console = f"https://console.aws.amazon.com/cloudwatch/home?region={region}"
    logs_arn = f"arn:aws:logs:{region}:{ACCOUNT_ID}:log-group:{group}:log-stream:{stream}"
    return {
        "id": f"{project['name']}:{stream}",
        "arn": f"arn:aws:codebuild:{region}:{ACCOUNT_ID}:build/{project['name']}:{stream}",
        "buildNumber": number,
        "startTime": now,
        "currentPhase": "QUEUED",
        "buildStatus": "IN_PROGRESS",
        "projectName": project["name"],
        "phases": [
            {"phaseType": "SUBMITTED", "phaseStatus": "SUCCEEDED", "startTime": now, "endTime": now},
            {"phaseType": "QUEUED", "phaseStatus": "SUCCEEDED", "startTime": now, "endTime": now},
        ],
        "source": effective["source"],
        "environment": effective["environment"],
        "logs": {
            "groupName": group,
            "streamName": stream,
            "deepLink": f"{console}#logsV2:log-groups/log-group/{group}/log-events/{stream}",
            "cloudWatchLogsArn": logs_arn,
            "cloudWatchLogs": {"status": "ENABLED"},
            "s3Logs": {"status": "DISABLED", "encryptionDisabled": False},
        },
        "buildComplete": False,
        "initiator": "sandbox",
        **{key: effective[key] for key in _BUILD_FIELDS if key in effective},
        "_project": project["arn"],
        "_token": request.get("idempotencyToken"),
        "_request": request,
    }


def _write_shims(directory: Path) -> Path:
    """Write the `docker` and `aws` that builds find first on their PATH."""
    directory.mkdir(parents=True, exist_ok=True)
    root = Path(__file__).parents[2]
    for name in ("docker", "aws"):
        program = directory / name
        program.write_text(
            f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(root))} exec {shlex.quote(sys.executable)} "
            f'-m airflow_smd.sandbox.docker {name} "$@"\n'
        )
        program.chmod(0o755)
    return directory.resolve()
