"""The life of a file system in the sandbox: created, updated, deleted, each taking its time."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends

from airflow_smd.sandbox import fsx_rules as rules
from airflow_smd.sandbox.fsx_links import Links
from airflow_smd.sandbox.fsx_rules import Refused
from airflow_smd.sandbox.fsx_state import State
from airflow_smd.sandbox.fsx_updates import advance_update, needs_cool_down
from airflow_smd.sandbox.runtime import ACCOUNT_ID, Runtime

TOKEN_MEMORY_SECONDS = 300.0
"""How long a request token is remembered; duplicates were seen about five minutes after a request."""
AWS_CREATION_SECONDS = 454.0
COOL_DOWN_SECONDS = 6 * 3600.0
LNET_PORT = 988


class Service:
    """FSx for Lustre of one sandbox. Every public method takes a request and returns the answer as JSON."""

    def __init__(self, runtime: Runtime, state: State, links: Links) -> None:
        self._runtime = runtime
        self._state = state
        self._links = links
        self._seconds = runtime.settings.file_system_seconds

    # -- create ------------------------------------------------------------------------------------------

    def create_file_system(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        """Create a file system, or return the one that the same token created."""
        with self._state.lock:
            self.advance()
            earlier = self._earlier(request)
            if earlier:
                return {"FileSystem": earlier["answer"]}
            wanted = rules.check_create(request)
            vpc_id, interfaces = self._join_network(request, region, wanted.servers)
            try:
                self._check_room(wanted, request)
            except Refused:
                self._leave_network(interfaces, region)
                raise
            record = self._record(request, region, wanted, vpc_id, interfaces)
            file_system_id = record["answer"]["FileSystemId"]
            self._state.file_systems[file_system_id] = record
            if token := request.get("ClientRequestToken"):
                self._state.tokens[token] = {"at": time.time(), "request": request, "id": file_system_id}
            self.directory(file_system_id).mkdir(parents=True)
            self._state.save()
        if "ImportPath" in wanted.lustre:
            self._links.import_legacy(file_system_id)
        return {"FileSystem": record["answer"]}

    def _earlier(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        known = self._state.tokens.get(request.get("ClientRequestToken", ""))
        if known is None or time.time() - known["at"] > TOKEN_MEMORY_SECONDS:
            return None
        record = self._state.file_systems.get(known["id"])
        differing = [
            name
            for name in sorted({*request, *known["request"]})
            if request.get(name) != known["request"].get(name)
        ]
        if record and differing:
            raise Refused(
                "IncompatibleParameterError",
                f"The client request token was used before with another {differing[0]}.",
                Parameter=differing[0],
            )
        return record

    def _join_network(self, request: Mapping[str, Any], region: str, servers: int) -> tuple[str, list[str]]:
        ec2, subnet_id = ec2_backends[ACCOUNT_ID][region], request["SubnetIds"][0]
        try:
            subnet = ec2.get_subnet(subnet_id)
        except EC2ClientError:
            raise Refused(
                "InvalidNetworkSettings",
                f"The subnet ID '{subnet_id}' does not exist",
                InvalidSubnetId=subnet_id,
            ) from None
        default = ec2.get_security_group_from_name("default", vpc_id=subnet.vpc_id)
        group_ids = request.get("SecurityGroupIds") or [default.id]
        groups = {group_id: ec2.get_security_group_from_id(group_id) for group_id in group_ids}
        for group_id, group in groups.items():
            if group is None or group.vpc_id != subnet.vpc_id:
                raise Refused(
                    "InvalidNetworkSettings",
                    f"The security group '{group_id}' does not exist in {subnet.vpc_id}",
                    InvalidSecurityGroupId=group_id,
                )
        if not any(_admits(rule) for group in groups.values() for rule in group.ingress_rules):
            raise Refused("InvalidNetworkSettings", rules.NO_LNET, InvalidSecurityGroupId=group_ids[0])
        if subnet.available_ip_address_count < servers:
            raise Refused(
                "InvalidNetworkSettings",
                f"The subnet '{subnet_id}' has not enough free IP addresses: {servers} are needed.",
                InvalidSubnetId=subnet_id,
            )
        interfaces = [
            ec2.create_network_interface(subnet, None, group_ids=group_ids, description="FSx").id
            for _ in range(servers)
        ]
        return subnet.vpc_id, interfaces

    def _leave_network(self, interfaces: Iterable[str], region: str) -> None:
        ec2 = ec2_backends[ACCOUNT_ID][region]
        for interface_id in interfaces:
            ec2.enis.pop(interface_id, None)

    def _check_room(self, wanted: rules.Shape, request: Mapping[str, Any]) -> None:
        rules.check_quota(
            wanted, [rules.shape(each["request"]) for each in self._state.file_systems.values()]
        )
        for name, code in (("ImportPath", "InvalidImportPath"), ("ExportPath", "InvalidExportPath")):
            if uri := wanted.lustre.get(name):
                self._links.check_bucket(uri, code)

    def _record(
        self, request: dict[str, Any], region: str, wanted: rules.Shape, vpc_id: str, interfaces: list[str]
    ) -> dict[str, Any]:
        now, file_system_id = time.time(), f"fs-0{secrets.token_hex(8)}"
        lustre = {key: value for key, value in wanted.lustre.items() if key not in _LEGACY}
        lustre |= {
            "DeploymentType": wanted.deployment_type,
            "MountName": "fsx" if wanted.deployment_type == "SCRATCH_1" else secrets.token_hex(4),
        }
        if metadata := lustre.get("MetadataConfiguration"):
            automatic = rules.automatic_iops(wanted.capacity_gib or 1200)
            lustre["MetadataConfiguration"] = {"Iops": automatic} | metadata
        if legacy := {key: wanted.lustre[key] for key in _LEGACY if key in wanted.lustre}:
            lustre["DataRepositoryConfiguration"] = {
                "Lifecycle": "CREATING",
                "AutoImportPolicy": "NONE",
            } | legacy
            bucket = legacy["ImportPath"].removeprefix("s3://").partition("/")[0]
            exported = f"s3://{bucket}/FSxLustre{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}"
            lustre["DataRepositoryConfiguration"].setdefault("ExportPath", exported)
        kept = ("FileSystemType", "StorageCapacity", "SubnetIds", "KmsKeyId", "Tags")
        answer = {key: request[key] for key in kept if key in request} | {
            "OwnerId": ACCOUNT_ID,
            "CreationTime": now,
            "FileSystemId": file_system_id,
            "Lifecycle": "CREATING",
            "StorageType": wanted.storage_type,
            "VpcId": vpc_id,
            "NetworkInterfaceIds": interfaces,
            "DNSName": f"{file_system_id}.fsx.{region}.amazonaws.com",
            "ResourceARN": f"arn:aws:fsx:{region}:{ACCOUNT_ID}:file-system/{file_system_id}",
            "FileSystemTypeVersion": wanted.version,
            "LustreConfiguration": lustre,
        }
        slow = self._runtime.faults.take(
            "slow_create", service="fsx", operation="CreateFileSystem", **request
        )
        fail = self._runtime.faults.take("fail", service="fsx", operation="CreateFileSystem", **request)
        ready_at = now + self._seconds + (slow.options["seconds"] if slow else 0.0)
        if fail:
            ready_at = now + fail.options["after_seconds"]
        return {
            "answer": answer,
            "request": request,
            "region": region,
            "ready_at": ready_at,
            "failure": fail.options["message"] if fail else None,
        }

    # -- look --------------------------------------------------------------------------------------------

    def describe_file_systems(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        """Return the file systems asked for, in pages."""
        with self._state.lock:
            self.advance()
            ids = request.get("FileSystemIds")
            if ids:
                found = [self.find(each, region)["answer"] for each in ids]
            else:
                found = [
                    each["answer"] for each in self._state.file_systems.values() if each["region"] == region
                ]
            return page("FileSystems", found, request)

    def find(self, file_system_id: str, region: str | None = None) -> dict[str, Any]:
        """Return the record of a file system; FileSystemNotFound if there is none."""
        record = self._state.file_systems.get(file_system_id)
        if record is None or region not in (None, record["region"]):
            raise Refused("FileSystemNotFound", f"File system '{file_system_id}' does not exist.")
        return record

    def directory(self, file_system_id: str) -> Path:
        """Return the real directory that stands for the file system."""
        return self._runtime.directory("fsx") / file_system_id

    def advance(self) -> None:
        """Bring every file system to where it is by now."""
        with self._state.lock:
            now, before = time.time(), list(_lifecycles(self._state))
            for file_system_id, record in list(self._state.file_systems.items()):
                answer = record["answer"]
                if "gone_at" in record:
                    if now >= record["gone_at"]:
                        self._purge(file_system_id, record)
                elif answer["Lifecycle"] == "CREATING" and now >= record["ready_at"]:
                    _finish_creation(record)
                elif "update" in record:
                    advance_update(record, now, self._seconds)
            if before != list(_lifecycles(self._state)):
                self._state.save()

    # -- update ------------------------------------------------------------------------------------------

    def update_file_system(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        """Begin to grow a file system or to change its tier."""
        with self._state.lock:
            self.advance()
            record, now = self.find(request["FileSystemId"], region), time.time()
            if "update" in record:
                raise Refused(
                    "BadRequest",
                    "Unable to perform the storage capacity update. There is an update already in progress.",
                )
            if record["answer"]["Lifecycle"] != "AVAILABLE":
                raise Refused(
                    "BadRequest",
                    f"Cannot update file system {request['FileSystemId']} while in "
                    f"{record['answer']['Lifecycle']} state.",
                )
            rules.check_update(rules.shape(record["request"]), request)
            changes = {key: request[key] for key in _UPDATABLE if key in request}
            if not changes:
                raise Refused("BadRequest", "Nothing to update was given.")
            cool_down = COOL_DOWN_SECONDS * self._seconds / AWS_CREATION_SECONDS
            if needs_cool_down(changes) and now - record.get("updated_at", 0.0) < cool_down:
                raise Refused("BadRequest", "The file system was updated within the last 6 hours.")
            record |= {"update": {"at": now, "changes": changes}, "updated_at": now}
            advance_update(record, now, self._seconds)
            self._state.save()
            return {"FileSystem": record["answer"]}

    # -- delete ------------------------------------------------------------------------------------------

    def delete_file_system(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        """Begin to delete a file system; refused while a data repository task runs on it."""
        file_system_id = request["FileSystemId"]
        with self._state.lock:
            self.advance()
            record = self.find(file_system_id, region)
            for name in ("WindowsConfiguration", "OpenZFSConfiguration"):
                if name in request:
                    raise Refused("BadRequest", f"{name} cannot be applied to delete a LUSTRE file system.")
            running = [
                task["answer"]["TaskId"]
                for task in self._state.of("tasks", file_system_id)
                if task["answer"]["Lifecycle"] in ("PENDING", "EXECUTING", "CANCELING")
            ]
            if running:
                raise Refused(
                    "BadRequest",
                    f"Cannot delete {file_system_id}: data repository task {running[0]} is running.",
                )
            if "gone_at" not in record:
                record["gone_at"] = time.time() + self._seconds / 2
                record["answer"]["Lifecycle"] = "DELETING"
                self._state.save()
            return {"FileSystemId": file_system_id, "Lifecycle": "DELETING", "LustreResponse": {}}

    def _purge(self, file_system_id: str, record: Mapping[str, Any]) -> None:
        self._leave_network(record["answer"]["NetworkInterfaceIds"], record["region"])
        del self._state.file_systems[file_system_id]
        self._links.forget(file_system_id)
        shutil.rmtree(self.directory(file_system_id), ignore_errors=True)


_LEGACY = ("ImportPath", "ExportPath", "ImportedFileChunkSize", "AutoImportPolicy")
_UPDATABLE = ("StorageCapacity", "LustreConfiguration", "FileSystemTypeVersion")


def page(name: str, items: list[Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of a Describe call; the token is the position, as FSx's pattern wants it."""
    token = request.get("NextToken", "AAAA0000")
    start, size = int(token.removeprefix("AAAA")), min(request.get("MaxResults") or 25, 25)
    answer: dict[str, Any] = {name: items[start : start + size]}
    if start + size < len(items):
        answer["NextToken"] = f"AAAA{start + size:04d}"
    return answer


def _admits(rule: Any) -> bool:
    if str(rule.ip_protocol) == "-1":
        return True
    ports = (rule.from_port, rule.to_port)
    return str(rule.ip_protocol) in ("tcp", "6") and int(ports[0]) <= LNET_PORT <= int(ports[1])


def _lifecycles(state: State) -> Iterable[tuple[str, str, str]]:
    for file_system_id, record in state.file_systems.items():
        actions = record["answer"].get("AdministrativeActions", [])
        yield file_system_id, record["answer"]["Lifecycle"], str([each["Status"] for each in actions])


def _finish_creation(record: dict[str, Any]) -> None:
    answer = record["answer"]
    legacy = answer["LustreConfiguration"].get("DataRepositoryConfiguration")
    if record["failure"]:
        answer |= {"Lifecycle": "FAILED", "FailureDetails": {"Message": record["failure"][:256]}}
    elif not legacy or legacy["Lifecycle"] != "CREATING":
        answer["Lifecycle"] = "AVAILABLE"
