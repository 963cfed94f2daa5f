"""FSx, EC2 and S3 clients in memory, as far as file systems need them; time passes when a test says so."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from airflow_smd.sandbox import fsx_rules as rules

SUBNET, OTHER_SUBNET, VPC = "subnet-0123456789abcdef0", "subnet-0123456789abcdef1", "vpc-0123456789abcdef0"
OPEN, CLOSED, ONLY_988 = "sg-0123456789abcdef0", "sg-0123456789abcdef1", "sg-0123456789abcdef2"
BUCKET = "data-bucket"
ALIVE = ("CREATING", "AVAILABLE", "UPDATING")


def refuse(operation: str, code: str, message: str, status: int = 400, **members: Any) -> ClientError:
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": members.pop("headers", {})},
        **members,
    }
    return ClientError(response, operation)


class FakeFsx:
    """A boto3 `fsx` client.

    Args:
        lag: how many DescribeFileSystems without ids do not show a new file system yet.
        page_size: most file systems of one answer.
    """

    def __init__(self, *, lag: int = 0, page_size: int = 25) -> None:
        self.meta = SimpleNamespace(region_name="us-east-1")
        self.lag, self.page_size = lag, page_size
        self.file_systems: dict[str, dict[str, Any]] = {}
        self.associations: dict[str, dict[str, Any]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, tuple[dict[str, Any], str]] = {}
        self.most_alive = 0
        self._hidden: dict[str, int] = {}
        self._numbers = itertools.count(1)

    @property
    def alive(self) -> list[str]:
        return [key for key, each in self.file_systems.items() if each["Lifecycle"] in ALIVE]

    def settle(self) -> None:
        """Let everything that takes time be over."""
        self._hidden.clear()
        for file_system_id, each in list(self.file_systems.items()):
            if each["Lifecycle"] == "DELETING":
                del self.file_systems[file_system_id]
            elif each["Lifecycle"] == "CREATING":
                each["Lifecycle"] = "AVAILABLE"
        for each in self.associations.values():
            each["Lifecycle"] = "AVAILABLE" if each["Lifecycle"] == "CREATING" else each["Lifecycle"]
        for each in self.tasks.values():
            each["Lifecycle"] = {"CANCELING": "CANCELED"}.get(each["Lifecycle"], each["Lifecycle"])

    def forget_tokens(self) -> None:
        self.tokens.clear()

    # -- file systems --

    def create_file_system(self, **request: Any) -> dict[str, Any]:
        operation, token = "CreateFileSystem", request.get("ClientRequestToken", "")
        if token in self.tokens and self.tokens[token][1] in self.file_systems:
            earlier, file_system_id = self.tokens[token]
            differing = [key for key in {**request, **earlier} if request.get(key) != earlier.get(key)]
            if differing:
                raise refuse(
                    operation, "IncompatibleParameterError", "The token was used.", Parameter=differing[0]
                )
            return {"FileSystem": deepcopy(self.file_systems[file_system_id])}
        wanted = _obeying(operation, lambda: rules.check_create(request))
        if request["SubnetIds"][0] not in (SUBNET, OTHER_SUBNET):
            raise refuse(
                operation, "InvalidNetworkSettings", "no subnet", InvalidSubnetId=request["SubnetIds"][0]
            )
        if CLOSED in request.get("SecurityGroupIds", ()):
            raise refuse(operation, "InvalidNetworkSettings", rules.NO_LNET)
        file_system_id = f"fs-{next(self._numbers):017x}"
        lustre = {key: value for key, value in wanted.lustre.items() if key != "ImportPath"}
        lustre["MountName"] = "fsx" if wanted.deployment_type == "SCRATCH_1" else "abcd1234"
        if "ImportPath" in wanted.lustre:
            lustre["DataRepositoryConfiguration"] = {
                "Lifecycle": "AVAILABLE",
                "ImportPath": wanted.lustre["ImportPath"],
            }
        self.file_systems[file_system_id] = {
            "FileSystemId": file_system_id,
            "FileSystemType": "LUSTRE",
            "Lifecycle": "CREATING",
            "CreationTime": datetime.now(UTC),
            "DNSName": f"{file_system_id}.fsx.us-east-1.amazonaws.com",
            "VpcId": VPC,
            "StorageType": wanted.storage_type,
            "FileSystemTypeVersion": wanted.version,
            "LustreConfiguration": lustre,
            **{key: request[key] for key in ("SubnetIds", "StorageCapacity", "Tags") if key in request},
        }
        self.tokens[token] = (request, file_system_id)
        self._hidden[file_system_id] = self.lag
        self.most_alive = max(self.most_alive, len(self.alive))
        return {"FileSystem": deepcopy(self.file_systems[file_system_id])}

    def describe_file_systems(self, **request: Any) -> dict[str, Any]:
        if ids := request.get("FileSystemIds"):
            missing = [each for each in ids if each not in self.file_systems]
            if missing:
                raise refuse("DescribeFileSystems", "FileSystemNotFound", f"{missing[0]} does not exist.")
            return {"FileSystems": [deepcopy(self.file_systems[each]) for each in ids]}
        shown = [each for key, each in self.file_systems.items() if self._hidden.get(key, 0) <= 0]
        self._hidden = {key: left - 1 for key, left in self._hidden.items()}
        start = int(request.get("NextToken", 0))
        answer: dict[str, Any] = {"FileSystems": deepcopy(shown[start : start + self.page_size])}
        if start + self.page_size < len(shown):
            answer["NextToken"] = str(start + self.page_size)
        return answer

    def delete_file_system(self, **request: Any) -> dict[str, Any]:
        operation, file_system_id = "DeleteFileSystem", request["FileSystemId"]
        if file_system_id not in self.file_systems:
            raise refuse(operation, "FileSystemNotFound", f"{file_system_id} does not exist.")
        if any(
            task["FileSystemId"] == file_system_id
            and task["Lifecycle"] in ("PENDING", "EXECUTING", "CANCELING")
            for task in self.tasks.values()
        ):
            raise refuse(operation, "BadRequest", "A data repository task is running.")
        self.file_systems[file_system_id]["Lifecycle"] = "DELETING"
        return {"FileSystemId": file_system_id, "Lifecycle": "DELETING"}

    # -- links --

    def create_data_repository_association(self, **request: Any) -> dict[str, Any]:
        operation, owner = "CreateDataRepositoryAssociation", self.file_systems[request["FileSystemId"]]
        existing = [
            each for each in self.associations.values() if each["FileSystemId"] == request["FileSystemId"]
        ]
        shape = rules.Shape(
            deployment_type=owner["LustreConfiguration"]["DeploymentType"],
            storage_type=owner["StorageType"],
            capacity_gib=owner.get("StorageCapacity"),
            per_unit=None,
            efa=False,
            version=owner["FileSystemTypeVersion"],
            lustre={},
        )
        _obeying(operation, lambda: rules.check_association(request, shape, existing))
        association_id = f"dra-{next(self._numbers):017x}"
        self.associations[association_id] = {
            **{key: request[key] for key in ("FileSystemId", "FileSystemPath", "DataRepositoryPath", "Tags")},
            "AssociationId": association_id,
            "BatchImportMetaDataOnCreate": request["BatchImportMetaDataOnCreate"],
            "Lifecycle": "CREATING",
        }
        return {"Association": deepcopy(self.associations[association_id])}

    def describe_data_repository_associations(self, **request: Any) -> dict[str, Any]:
        operation = "DescribeDataRepositoryAssociations"
        return {"Associations": _chosen(operation, self.associations, request, "Association")}

    # -- tasks --

    def create_data_repository_task(self, **request: Any) -> dict[str, Any]:
        task_id = f"task-{next(self._numbers):017x}"
        self.tasks[task_id] = {
            "TaskId": task_id,
            "FileSystemId": request["FileSystemId"],
            "Type": request["Type"],
            "Lifecycle": "EXECUTING",
            "CreationTime": datetime.now(UTC),
        }
        return {"DataRepositoryTask": deepcopy(self.tasks[task_id])}

    def describe_data_repository_tasks(self, **request: Any) -> dict[str, Any]:
        operation = "DescribeDataRepositoryTasks"
        return {"DataRepositoryTasks": _chosen(operation, self.tasks, request, "Task")}

    def cancel_data_repository_task(self, **request: Any) -> dict[str, Any]:
        task = self.tasks[request["TaskId"]]
        if task["Lifecycle"] not in ("PENDING", "EXECUTING"):
            raise refuse("CancelDataRepositoryTask", "DataRepositoryTaskEnded", "It has ended.")
        task["Lifecycle"] = "CANCELING"
        return {"TaskId": request["TaskId"], "Lifecycle": "CANCELING"}


def _chosen(
    operation: str, records: Mapping[str, dict[str, Any]], request: Mapping[str, Any], kind: str
) -> list[dict[str, Any]]:
    wanted = {each["Name"]: each["Values"] for each in request.get("Filters", ())}
    ids = request.get(f"{kind}Ids")
    for missing in [each for each in ids or () if each not in records]:
        raise refuse(operation, f"DataRepository{kind}NotFound", f"{missing} does not exist.")
    found = [records[each] for each in ids] if ids else list(records.values())
    states = wanted.get("task-lifecycle")
    return [
        deepcopy(each)
        for each in found
        if ("file-system-id" not in wanted or each["FileSystemId"] in wanted["file-system-id"])
        and (states is None or each["Lifecycle"] in states)
    ]


def _obeying(operation: str, check: Callable[[], Any]) -> Any:
    try:
        return check()
    except rules.Refused as refused:
        body = json.loads(refused.description)
        raise refuse(operation, body.pop("__type"), body.pop("Message"), **body) from None


def _rule(first: int, last: int, group_id: str) -> dict[str, Any]:
    return {
        "IpProtocol": "tcp",
        "FromPort": first,
        "ToPort": last,
        "UserIdGroupPairs": [{"GroupId": group_id}],
        "IpRanges": [],
    }


EVERYWHERE = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}], "UserIdGroupPairs": []}


class FakeEc2:
    """A boto3 `ec2` client of one VPC with two subnets, the second nearly full, and three groups."""

    def __init__(self, *, denied: bool = False) -> None:
        self.denied = denied
        self.groups = {
            OPEN: [_rule(988, 988, OPEN), _rule(1018, 1023, OPEN)],
            CLOSED: [],
            ONLY_988: [_rule(988, 988, ONLY_988)],
        }

    def describe_subnets(self, *, Filters: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        if self.denied:
            raise refuse("DescribeSubnets", "UnauthorizedOperation", "You are not authorized.", 403)
        subnets = [
            {
                "SubnetId": subnet_id,
                "VpcId": VPC,
                "AvailabilityZone": "us-east-1a",
                "CidrBlock": "10.0.0.0/24",
                "AvailableIpAddressCount": free,
            }
            for subnet_id, free in ((SUBNET, 200), (OTHER_SUBNET, 3))
        ]
        return {"Subnets": [each for each in subnets if each["SubnetId"] in Filters[0]["Values"]]}

    def describe_security_groups(self, *, Filters: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        return {
            "SecurityGroups": [
                {
                    "GroupId": group_id,
                    "VpcId": VPC,
                    "IpPermissions": self.groups[group_id],
                    "IpPermissionsEgress": [EVERYWHERE],
                }
                for group_id in Filters[0]["Values"]
                if group_id in self.groups
            ]
        }


class FakeS3:
    """A boto3 `s3` client that has two buckets, in two Regions, the first with one object."""

    def __init__(self) -> None:
        self.meta = SimpleNamespace(region_name="us-east-1")
        self.buckets = {BUCKET: "us-east-1", "far-away": "eu-west-1"}
        self.keys = [(BUCKET, "digits/train-000.tar")]

    def head_bucket(self, *, Bucket: str) -> dict[str, Any]:  # noqa: N803
        if Bucket not in self.buckets:
            raise refuse("HeadBucket", "404", "Not Found", 404)
        headers = {"x-amz-bucket-region": self.buckets[Bucket]}
        if Bucket == "far-away":
            raise refuse("HeadBucket", "301", "Moved Permanently", 301, headers=headers)
        return {"ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": headers}}

    def list_objects_v2(self, *, Bucket: str, Prefix: str, MaxKeys: int) -> dict[str, Any]:  # noqa: N803
        found = [key for bucket, key in self.keys if bucket == Bucket and key.startswith(Prefix)]
        return {"KeyCount": min(MaxKeys, len(found))}


class FakeConnection:
    """An Airflow connection to the clients above; `around` may wrap each of them."""

    def __init__(self, around: Callable[[str, Any], Any] = lambda _name, client: client) -> None:
        self.fsx, self.ec2, self.s3 = FakeFsx(), FakeEc2(), FakeS3()
        self.around = around

    def client(self, service: str) -> Any:
        return self.around(service, getattr(self, service))

    def serialize(self) -> dict[str, Any]:
        return {"aws_conn_id": "none"}


class Killed(BaseException):
    """The process is gone: no handler of the code under test runs."""


class Lost(Exception):
    """The network broke: the code under test goes on and may clean up."""


class Breaking:
    """Wraps clients so that chosen calls break, before or after they have their effect.

    Args:
        breaks: number of the call, from 1, over all clients -> (`before` | `after`, error).
    """

    def __init__(self, breaks: Mapping[int, tuple[str, type[BaseException]]] | None = None) -> None:
        self.breaks = dict(breaks or {})
        self.calls: list[str] = []

    def __call__(self, service: str, client: Any) -> Any:
        return _Wrapped(self, service, client)


class _Wrapped:
    def __init__(self, breaking: Breaking, service: str, client: Any) -> None:
        self._breaking, self._service, self._client = breaking, service, client

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if not callable(attribute):
            return attribute

        def call(**request: Any) -> Any:
            self._breaking.calls.append(f"{self._service}.{name}")
            when, error = self._breaking.breaks.get(len(self._breaking.calls), ("", Lost))
            if when == "before":
                raise error(name)
            answer = attribute(**request)
            if when == "after":
                raise error(name)
            return answer

        return call
