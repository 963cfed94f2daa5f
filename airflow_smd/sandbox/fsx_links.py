"""What links the sandbox's file systems with S3: associations and the older ImportPath, filled by threads."""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from airflow_smd.sandbox import fsx_rules as rules
from airflow_smd.sandbox.fsx_files import Linked, inside, split
from airflow_smd.sandbox.fsx_rules import Refused
from airflow_smd.sandbox.fsx_state import State
from airflow_smd.sandbox.runtime import ACCOUNT_ID, Runtime

LOG = logging.getLogger(__name__)


class Links:
    """What connects the file systems of one sandbox with S3."""

    def __init__(self, runtime: Runtime, state: State) -> None:
        self._runtime = runtime
        self._state = state
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="fsx")
        self._root = runtime.directory("fsx")

    @cached_property
    def s3(self) -> Any:
        """Return the client by which threads reach the sandbox's own S3."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self._runtime.endpoint_url,
            region_name=self._runtime.settings.region,
            aws_access_key_id="sandbox",
            aws_secret_access_key="sandbox",
        )

    def submit(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do `work` in a thread; an error that it does not expect is said and not lost with the thread."""

        def guarded() -> None:
            try:
                work(*arguments)
            except Exception:
                if not self._runtime.stopping.is_set():
                    LOG.exception("FSx could not finish %s%s", work.__name__, arguments)

        self._workers.submit(guarded)

    def resume(self) -> None:
        """Take up what an earlier run of the sandbox left unfinished."""
        for file_system_id, record in self._state.file_systems.items():
            legacy = record["answer"]["LustreConfiguration"].get("DataRepositoryConfiguration", {})
            if legacy.get("Lifecycle") == "CREATING":
                self.import_legacy(file_system_id)
        for association_id, record in self._state.associations.items():
            if record["answer"]["Lifecycle"] == "CREATING":
                self.submit(self._fill, association_id)

    def stop(self) -> None:
        """Let the threads end; what they did not finish is resumed by the next run."""
        self._workers.shutdown(cancel_futures=True)

    def check_bucket(self, uri: str, code: str) -> None:
        """Refuse with `code` if the bucket of `uri` cannot be reached."""
        try:
            self.s3.head_bucket(Bucket=split(uri)[0])
        except ClientError:
            raise Refused(code, rules.NO_BUCKET_ACCESS) from None

    def import_legacy(self, file_system_id: str) -> None:
        """Fill a new file system from its ImportPath."""
        self.submit(self._fill_legacy, file_system_id)

    def forget(self, file_system_id: str) -> None:
        """Drop the associations and tasks of a file system that is gone."""
        for records in (self._state.associations, self._state.tasks):
            for key in [k for k, v in records.items() if v["answer"]["FileSystemId"] == file_system_id]:
                del records[key]

    # -- associations ------------------------------------------------------------------------------------

    def create(self, request: dict[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
        """Link a directory of the file system whose record is `owner` with an S3 prefix."""
        uri = request["DataRepositoryPath"]
        with self._state.lock:
            token = request.get("ClientRequestToken", "")
            known = self._state.tokens.get(token, {}).get("id")
            if known in self._state.associations:
                return {"Association": self._state.associations[known]["answer"]}
            if owner["answer"]["Lifecycle"] not in ("AVAILABLE", "UPDATING"):
                raise Refused(
                    "BadRequest", f"The file system is {owner['answer']['Lifecycle']}, not AVAILABLE."
                )
            existing = [each["answer"] for each in self._state.of("associations", request["FileSystemId"])]
            rules.check_association(request, rules.shape(owner["request"]), existing)
            self.check_bucket(uri, "BadRequest")
            association_id = f"dra-0{secrets.token_hex(8)}"
            kept = (
                "FileSystemId",
                "FileSystemPath",
                "DataRepositoryPath",
                "ImportedFileChunkSize",
                "S3",
                "Tags",
            )
            answer = {key: request[key] for key in kept if key in request} | {
                "AssociationId": association_id,
                "ResourceARN": resource_arn(owner, "association", association_id),
                "Lifecycle": "CREATING",
                "BatchImportMetaDataOnCreate": bool(request.get("BatchImportMetaDataOnCreate")),
                "CreationTime": time.time(),
            }
            slow = self._runtime.faults.take(
                "slow_create", service="fsx", operation="CreateDataRepositoryAssociation", **request
            )
            self._state.associations[association_id] = {
                "answer": answer,
                "not_before": time.time() + (slow.options["seconds"] if slow else 0.0),
            }
            if token:
                self._state.tokens[token] = {"at": time.time(), "request": request, "id": association_id}
            self._state.save()
        self.submit(self._fill, association_id)
        return {"Association": answer}

    def association(self, association_id: str) -> dict[str, Any]:
        """Return an association's record; DataRepositoryAssociationNotFound if there is none."""
        if association_id not in self._state.associations:
            raise Refused(
                "DataRepositoryAssociationNotFound",
                f"Data repository association '{association_id}' does not exist.",
            )
        return self._state.associations[association_id]

    def update(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Change an association's policies or chunk size."""
        with self._state.lock:
            answer = self.association(request["AssociationId"])["answer"]
            for name in ("S3", "ImportedFileChunkSize"):
                if name in request:
                    answer[name] = request[name]
            self._state.save()
            return {"Association": answer}

    def delete(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """End a link and, when asked to, remove its files from the file system."""
        with self._state.lock:
            answer = self.association(request["AssociationId"])["answer"]
            answer["Lifecycle"] = "DELETING"
            self._state.save()
        drop = bool(request.get("DeleteDataInFileSystem"))
        self.submit(self._unlink, answer["AssociationId"], drop)
        return {
            "AssociationId": answer["AssociationId"],
            "Lifecycle": "DELETING",
            "DeleteDataInFileSystem": drop,
        }

    def _unlink(self, association_id: str, drop: bool) -> None:
        with self._state.lock:
            record = self._state.associations.pop(association_id, None)
            self._state.save()
        if record and drop:
            shutil.rmtree(self._directory(record["answer"]), ignore_errors=True)

    def _directory(self, answer: Mapping[str, Any]) -> Path:
        return inside(self._root / answer["FileSystemId"], answer["FileSystemPath"])

    def _fill(self, association_id: str) -> None:
        record = self._state.associations[association_id]
        answer, file_system_id = record["answer"], record["answer"]["FileSystemId"]

        def go_on() -> bool:
            return (
                not self._runtime.stopping.is_set()
                and answer["Lifecycle"] == "CREATING"
                and self._alive(file_system_id)
            )

        self._runtime.stopping.wait(max(0.0, record["not_before"] - time.time()))
        directory = self._directory(answer)
        directory.mkdir(parents=True, exist_ok=True)
        failure = self._import(answer["DataRepositoryPath"], directory, go_on, answer)
        with self._state.lock:
            if go_on():
                _settle(answer, failure)
                self._state.save()
        self._drop_if_gone(file_system_id)

    def _fill_legacy(self, file_system_id: str) -> None:
        answer = self._state.file_systems[file_system_id]["answer"]
        legacy = answer["LustreConfiguration"]["DataRepositoryConfiguration"]

        def go_on() -> bool:
            return not self._runtime.stopping.is_set() and self._alive(file_system_id)

        # without an association a file keeps its whole key: the prefix only chooses what is imported
        directory = inside(self._root / file_system_id, split(legacy["ImportPath"])[1])
        failure = self._import(legacy["ImportPath"], directory, go_on)
        with self._state.lock:
            if go_on():
                _settle(legacy, failure)
                self._state.save()
        self._drop_if_gone(file_system_id)

    def _import(
        self,
        uri: str,
        directory: Path,
        go_on: Callable[[], bool],
        association: Mapping[str, Any] | None = None,
    ) -> str | None:
        if association is not None and not association["BatchImportMetaDataOnCreate"]:
            return None
        try:
            tally = Linked(self.s3, directory, uri, go_on).import_objects()
        except (ClientError, BotoCoreError, OSError) as error:
            return str(error)
        return f"{tally.failures[0][0]}: {tally.failures[0][1]}" if tally.failures else None

    def _alive(self, file_system_id: str) -> bool:
        record = self._state.file_systems.get(file_system_id)
        return record is not None and "gone_at" not in record

    def _drop_if_gone(self, file_system_id: str) -> None:
        if file_system_id not in self._state.file_systems:
            shutil.rmtree(self._root / file_system_id, ignore_errors=True)


def _settle(answer: dict[str, Any], failure: str | None) -> None:
    answer["Lifecycle"] = "MISCONFIGURED" if failure else "AVAILABLE"
    if failure:
        answer["FailureDetails"] = {"Message": failure[:256]}


def resource_arn(owner: Mapping[str, Any], kind: str, name: str) -> str:
    """Return the ARN of an association or task of the file system whose record is `owner`."""
    return f"arn:aws:fsx:{owner['region']}:{ACCOUNT_ID}:{kind}/{owner['answer']['FileSystemId']}/{name}"
