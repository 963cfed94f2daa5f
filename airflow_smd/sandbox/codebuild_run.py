"""One build from QUEUED to COMPLETED."""

from __future__ import annotations

import io
import os
import stat
import threading
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from airflow_smd.sandbox.buildspec import (
    PHASES,
    Buildspec,
    BuildspecError,
    Interrupted,
    Shell,
    parse_buildspec,
)
from airflow_smd.sandbox.oci_run import way_out
from airflow_smd.sandbox.runtime import ACCOUNT_ID, Runtime

LOCK = threading.RLock()
"""Held while a build is changed or copied."""
FAILED, SUCCEEDED, STOPPED, TIMED_OUT, FAULT = "FAILED", "SUCCEEDED", "STOPPED", "TIMED_OUT", "FAULT"


class PhaseFailed(Exception):
    """A phase that failed, with what CodeBuild puts into its context."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class BuildRun:
    """Runs one build in a thread.

    Args:
        runtime: the sandbox.
        build: the build as BatchGetBuilds shows it; changed as it goes on.
        save: called after each change.
        shims: directory with `docker` and `aws`, which heads PATH.
    """

    def __init__(
        self, runtime: Runtime, build: dict[str, Any], save: Callable[[], None], shims: Path
    ) -> None:
        self._runtime = runtime
        self._build = build
        self._save = save
        self._shims = shims
        self._directory = runtime.directory("codebuild") / "work" / build["id"].replace(":", "-")
        self._why = ""
        self._message = ""
        self._shell: Shell | None = None
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._run, daemon=True, name=build["id"])

    def end(self, status: str, message: str = "") -> None:
        """End the build with STOPPED, TIMED_OUT or FAULT; the first reason counts."""
        with self._lock:
            self._why = self._why or status
            self._message = self._message or message or f"Build {status}"
            shell = self._shell
        if shell:
            shell.interrupt()

    def _run(self) -> None:
        timer = threading.Timer(60 * self._build["timeoutInMinutes"], self.end, [TIMED_OUT])
        timer.daemon = True
        timer.start()
        try:
            self._phases()
        except Exception as error:  # the sandbox's own fault, said as AWS says its own
            self._finish(FAULT, "INTERNAL_SERVICE_ERROR", f"{type(error).__name__}: {error}")
        finally:
            timer.cancel()

    def _phases(self) -> None:
        status, spec = SUCCEEDED, None
        self._log(f"Waiting for agent ping: this machine, {self._runtime.settings.images} image builder")
        for name in ("PROVISIONING", "DOWNLOAD_SOURCE"):
            with_source = name == "DOWNLOAD_SOURCE"
            status = self._phase(name, self._source if with_source else lambda: None)
            if status != SUCCEEDED:
                return self._finish(status)
        try:
            spec = parse_buildspec(self._buildspec())
            self._shell = self._make_shell(spec)
        except (BuildspecError, OSError) as error:
            self._log(str(error))
            self._build["phases"][-1] |= {
                "phaseStatus": FAILED,
                "contexts": [_context("YAML_FILE_ERROR", error)],
            }
            return self._finish(FAILED)
        for name in PHASES:
            if name == "post_build" or status == SUCCEEDED:
                ended = self._phase(name.upper(), partial(self._commands, spec, name))
                status = ended if status == SUCCEEDED else status
            if self._why or (status != SUCCEEDED and name in ("install", "pre_build")):
                break
        return self._finish(status)

    def _commands(self, spec: Buildspec, name: str) -> None:
        """Run one phase's commands up to the first that fails, then its `finally` commands."""
        failure: PhaseFailed | None = None
        for command in spec.phases.get(name, ()):
            failure = self._command(command)
            if failure:
                break
        for command in spec.finally_.get(name, ()):
            failure = self._command(command) or failure
        if failure:
            raise failure

    def _command(self, command: str) -> PhaseFailed | None:
        assert self._shell
        self._log(f"Running command {command}")
        succeeding = all(phase.get("phaseStatus") in (None, SUCCEEDED) for phase in self._build["phases"])
        code = self._shell.run(command, {"CODEBUILD_BUILD_SUCCEEDING": str(int(succeeding))})
        if code == 0:
            return None
        self._log(f"Command did not exit successfully {command} exit status {code}")
        message = f"Error while executing command: {command}. Reason: exit status {code}"
        return PhaseFailed("COMMAND_EXECUTION_ERROR", message)

    def _phase(self, name: str, work: Callable[[], None]) -> str:
        """Do the work of a phase and return its status; its end and context go into the build."""
        began = time.time()
        phase: dict[str, Any] = {"phaseType": name, "startTime": began}
        with LOCK:
            self._build["phases"].append(phase)
            self._build["currentPhase"] = name
            self._save()
        self._log(f"Entering phase {name}")
        status, contexts = SUCCEEDED, [{"statusCode": "", "message": ""}]
        try:
            if self._why:
                raise Interrupted
            work()
        except Interrupted:
            status = self._why
            contexts = [_context(f"BUILD_{status}", self._message)]
        except PhaseFailed as failure:
            status, contexts = FAILED, [_context(failure.code, failure)]
        with LOCK:
            phase |= {
                "phaseStatus": status,
                "endTime": time.time(),
                "durationInSeconds": int(time.time() - began),
                "contexts": contexts,
            }
            self._save()
        self._log(f"Phase complete: {name} State: {status}")
        self._log(f"Phase context status code: {contexts[0]['statusCode']} Message: {contexts[0]['message']}")
        return status

    def _finish(self, status: str, code: str = "", message: str = "") -> None:
        now = time.time()
        with LOCK:
            for phase in self._build["phases"]:
                if "endTime" not in phase:
                    phase |= {"endTime": now, "phaseStatus": status, "contexts": [_context(code, message)]}
            self._build["phases"].append({"phaseType": "COMPLETED", "startTime": now})
            self._build |= {
                "buildStatus": status,
                "currentPhase": "COMPLETED",
                "buildComplete": True,
                "endTime": now,
            }
            self._save()

    def _source(self) -> None:
        source = self._build["source"]
        target = self._directory / "src"
        target.mkdir(parents=True, exist_ok=True)
        if source["type"] == "NO_SOURCE":
            return
        if source["type"] != "S3":
            raise PhaseFailed(
                "CLIENT_ERROR", f"The sandbox downloads from S3 only, not from {source['type']}"
            )
        import boto3
        from botocore.exceptions import ClientError

        bucket, _, key = source["location"].removeprefix("arn:aws:s3:::").partition("/")
        client = boto3.client("s3", endpoint_url=self._runtime.endpoint_url)
        try:
            packed = client.get_object(Bucket=bucket, Key=key)["Body"].read()
        except ClientError as error:
            message = f"{error.response['Error']['Code']}: {error.response['Error']['Message']}"
            raise PhaseFailed("CLIENT_ERROR", f"{message} for primary source {source['location']}") from error
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            for member in archive.infolist():
                where = Path(archive.extract(member, target))
                mode = stat.S_IMODE(member.external_attr >> 16)
                if mode and not member.is_dir():
                    where.chmod(mode)

    def _buildspec(self) -> str:
        given = self._build["source"].get("buildspec", "")
        if "\n" in given or given.lstrip().startswith("{") or "phases" in given:
            return str(given)
        path = self._directory / "src" / (given or "buildspec.yml")
        if not path.is_file():
            raise BuildspecError(f"YAML_FILE_ERROR: stat {path.name}: no such file or directory")
        return path.read_text()

    def _make_shell(self, spec: Buildspec) -> Shell:
        settings = self._runtime.settings
        build = self._build
        given = {item["name"]: item["value"] for item in build["environment"]["environmentVariables"]}
        region = build["arn"].split(":")[3]
        path = os.environ.get("PATH", "/usr/bin:/bin")
        environment = {
            "PATH": f"{self._shims}:{settings.container_python.parent}:{path}",
            "HOME": str(self._directory),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "AWS_REGION": region,
            "AWS_DEFAULT_REGION": region,
            "AWS_ENDPOINT_URL": self._runtime.endpoint_url,
            "AWS_ACCESS_KEY_ID": "sandbox",
            "AWS_SECRET_ACCESS_KEY": "sandbox",
            "SMD_SANDBOX_IMAGES": str(self._runtime.directory("images")),
            "SMD_SANDBOX_ACCOUNT": ACCOUNT_ID,
            "SMD_SANDBOX_PYTHON": str(settings.container_python),
            "SMD_SANDBOX_BUILDER": settings.images,
            "SMD_SANDBOX_SHIMS": str(self._shims),
            "CODEBUILD_BUILD_ID": build["id"],
            "CODEBUILD_BUILD_ARN": build["arn"],
            "CODEBUILD_BUILD_NUMBER": str(build["buildNumber"]),
            "CODEBUILD_BUILD_IMAGE": build["environment"].get("image", ""),
            "CODEBUILD_INITIATOR": build["initiator"],
            "CODEBUILD_LOG_PATH": build["logs"]["streamName"],
            "CODEBUILD_SRC_DIR": str(self._directory / "src"),
            "CODEBUILD_START_TIME": str(int(1000 * build["startTime"])),
            "CI": "true",
        }
        return Shell(
            children=self._runtime.children,
            directory=self._directory / "src",
            state=self._directory / "state",
            environment={**way_out(os.environ), **environment, **spec.variables, **given},
            write=self._log,
        )

    def _log(self, line: str) -> None:
        from moto.logs.models import logs_backends

        logs = self._build["logs"]
        backend = logs_backends[ACCOUNT_ID][self._build["arn"].split(":")[3]]
        with self._runtime.changing():
            backend.ensure_log_group(logs["groupName"])
            backend.ensure_log_stream(logs["groupName"], logs["streamName"])
            event = {"timestamp": int(1000 * time.time()), "message": f"{line}\n"}
            backend.put_log_events(logs["groupName"], logs["streamName"], [event])


def _context(code: str, message: Any) -> dict[str, str]:
    return {"statusCode": code, "message": str(message)}
