"""Data repository tasks of the sandbox's file systems: import, export, release."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from airflow_smd.sandbox.fsx_files import Linked, Tally, inside, split
from airflow_smd.sandbox.fsx_links import Links, resource_arn
from airflow_smd.sandbox.fsx_rules import Refused
from airflow_smd.sandbox.fsx_state import State
from airflow_smd.sandbox.runtime import Runtime

RUNNING = ("PENDING", "EXECUTING", "CANCELING")
WORK: Mapping[str, Callable[[Linked, str], Tally]] = {
    "IMPORT_METADATA_FROM_REPOSITORY": Linked.import_objects,
    "EXPORT_TO_REPOSITORY": Linked.export_files,
    "RELEASE_DATA_FROM_FILESYSTEM": Linked.release,
}


class Tasks:
    """The data repository tasks of one sandbox; at most one runs on a file system."""

    def __init__(self, runtime: Runtime, state: State, links: Links) -> None:
        self._runtime = runtime
        self._state = state
        self._links = links
        self._root = runtime.directory("fsx")

    def resume(self) -> None:
        """Take up the tasks that an earlier run of the sandbox left unfinished."""
        for task_id, record in self._state.tasks.items():
            if record["answer"]["Lifecycle"] in RUNNING:
                self._links.submit(self._perform, task_id)

    def create(self, request: dict[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
        """Start an import, export or release; one at a time for a file system."""
        with self._state.lock:
            token = request.get("ClientRequestToken", "")
            known = self._state.tokens.get(token, {}).get("id")
            if known in self._state.tasks:
                return {"DataRepositoryTask": self._state.tasks[known]["answer"]}
            self._check_task(request, owner)
            task_id = f"task-0{secrets.token_hex(8)}"
            kept = ("FileSystemId", "Type", "Paths", "Report", "ReleaseConfiguration", "Tags")
            answer = {key: request[key] for key in kept if key in request} | {
                "TaskId": task_id,
                "ResourceARN": resource_arn(owner, "task", task_id),
                "Lifecycle": "PENDING",
                "CreationTime": time.time(),
            }
            self._state.tasks[task_id] = {"answer": answer}
            if token:
                self._state.tokens[token] = {"at": time.time(), "request": request, "id": task_id}
            self._state.save()
        self._links.submit(self._perform, task_id)
        return {"DataRepositoryTask": answer}

    def _check_task(self, request: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
        report, file_system_id = request["Report"], request["FileSystemId"]
        if request["Type"] not in WORK:
            raise Refused("BadRequest", f"{request['Type']} is not supported for a file system.")
        if any(each["answer"]["Lifecycle"] in RUNNING for each in self._state.of("tasks", file_system_id)):
            raise Refused("DataRepositoryTaskExecuting", "A data repository task is executing already.")
        prefixes = self._prefixes(owner, request["Type"])
        if not prefixes:
            raise Refused("BadRequest", "The file system is not linked to a data repository.")
        if report["Enabled"]:
            path = report.get("Path", "")
            if "Format" not in report or "Scope" not in report:
                raise Refused("BadRequest", "An enabled report needs Path, Format and Scope.")
            if not any((path + "/").startswith(uri.rstrip("/") + "/") for uri in prefixes.values()):
                raise Refused("BadRequest", f"The report path {path} is not in a linked data repository.")
        if request["Type"] == "RELEASE_DATA_FROM_FILESYSTEM" and "ReleaseConfiguration" not in request:
            raise Refused("BadRequest", "ReleaseConfiguration is required for RELEASE_DATA_FROM_FILESYSTEM.")

    def _prefixes(self, owner: Mapping[str, Any], kind: str = "") -> dict[str, str]:
        """Return the linked directories of a file system, each with its S3 prefix."""
        answer = owner["answer"]
        linked = {
            each["answer"]["FileSystemPath"]: each["answer"]["DataRepositoryPath"]
            for each in self._state.of("associations", answer["FileSystemId"])
        }
        legacy = answer["LustreConfiguration"].get("DataRepositoryConfiguration")
        if linked or not legacy:
            return linked
        if kind == "EXPORT_TO_REPOSITORY":
            return {"/": legacy["ExportPath"]}
        return {f"/{split(legacy['ImportPath'])[1]}": legacy["ImportPath"]}

    def cancel(self, task_id: str) -> dict[str, Any]:
        """Ask a task to end early."""
        with self._state.lock:
            answer = self.task(task_id)["answer"]
            if answer["Lifecycle"] not in RUNNING:
                raise Refused("DataRepositoryTaskEnded", f"Data repository task '{task_id}' has ended.")
            answer["Lifecycle"] = "CANCELING"
            self._state.save()
            return {"TaskId": task_id, "Lifecycle": "CANCELING"}

    def task(self, task_id: str) -> dict[str, Any]:
        """Return a task's record; DataRepositoryTaskNotFound if there is none."""
        if task_id not in self._state.tasks:
            raise Refused("DataRepositoryTaskNotFound", f"Data repository task '{task_id}' does not exist.")
        return self._state.tasks[task_id]

    def _perform(self, task_id: str) -> None:
        answer = self._state.tasks[task_id]["answer"]
        owner = self._state.file_systems[answer["FileSystemId"]]
        with self._state.lock:
            if answer["Lifecycle"] == "PENDING":
                answer |= {"Lifecycle": "EXECUTING", "StartTime": time.time()}
            self._state.save()

        def go_on() -> bool:
            return not self._runtime.stopping.is_set() and answer["Lifecycle"] == "EXECUTING"

        ends_at = time.time() + self._runtime.settings.file_system_seconds
        tally, failure = Tally(), None
        try:
            for directory, uri, below in self._scope(answer, owner):
                done = WORK[answer["Type"]](Linked(self._links.s3, directory, uri, go_on), below)
                tally.total += done.total
                tally.succeeded += done.succeeded
                tally.released_bytes += done.released_bytes
                tally.failures += done.failures
        except (ClientError, BotoCoreError, OSError, ValueError) as error:
            failure = str(error)
        while go_on() and time.time() < ends_at:
            self._runtime.stopping.wait(0.05)
        if not self._runtime.stopping.is_set():
            self._conclude(answer, tally, failure)

    def _scope(self, answer: Mapping[str, Any], owner: Mapping[str, Any]) -> list[tuple[Path, str, str]]:
        """Return (directory, prefix, path below both) of everything that the task covers."""
        root = self._root / answer["FileSystemId"]
        prefixes = self._prefixes(owner, answer["Type"])
        linked = [(inside(root, path), uri, "") for path, uri in prefixes.items()]
        if not (paths := answer.get("Paths")):
            return linked
        scope = []
        for path in paths:
            for directory, uri, _ in linked:
                start = uri if path.startswith("s3://") else str(directory.relative_to(root))
                start = "" if start == "." else start.rstrip("/")
                wanted = path.rstrip("/") if path.startswith("s3://") else path.strip("/")
                if f"{wanted}/".startswith(f"{start}/") or not start:
                    scope.append((directory, uri, wanted[len(start) :].lstrip("/")))
                    break
            else:
                raise ValueError(f"{path} is not in a linked directory")
        return scope

    def _conclude(self, answer: dict[str, Any], tally: Tally, failure: str | None) -> None:
        if answer["Report"]["Enabled"] and tally.failures:
            bucket, prefix = split(answer["Report"]["Path"])
            key = f"{prefix}{answer['TaskId']}/failures.csv"
            self._links.s3.put_object(Bucket=bucket, Key=key, Body=tally.report())
        with self._state.lock:
            now = time.time()
            canceled = answer["Lifecycle"] == "CANCELING"
            failed = failure or (f"{len(tally.failures)} files failed." if tally.failures else None)
            answer |= {
                "Lifecycle": "CANCELED" if canceled else "FAILED" if failed else "SUCCEEDED",
                "EndTime": now,
                "Status": {
                    "TotalCount": tally.total,
                    "SucceededCount": tally.succeeded,
                    "FailedCount": len(tally.failures),
                    "LastUpdatedTime": now,
                    "ReleasedCapacity": tally.released_bytes // 2**30,
                },
            }
            if failed and not canceled:
                answer["FailureDetails"] = {"Message": failed[:256]}
            self._state.save()
