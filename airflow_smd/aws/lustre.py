"""FSx for Lustre file systems and their links to S3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from botocore.exceptions import ClientError

from airflow_smd.domain.identity import TaskIdentity
from airflow_smd.domain.lustre.lifecycle import (
    FileSystem,
    FileSystemLifecycle,
    Link,
    RepositoryLifecycle,
    RepositoryTaskLifecycle,
    made_by,
)
from airflow_smd.errors import (
    FileSystemLimitReached,
    FileSystemRefused,
    FileSystemTokenTaken,
    UnexpectedAnswer,
)

REFUSALS = (
    "BadRequest",
    "UnsupportedOperation",
    "InvalidImportPath",
    "InvalidExportPath",
    "InvalidNetworkSettings",
    "InvalidPerUnitStorageThroughput",
    "MissingFileSystemConfiguration",
    "FileSystemNotFound",
)
State = TypeVar("State", FileSystemLifecycle, RepositoryLifecycle)
RUNNING_TASKS = (RepositoryTaskLifecycle.PENDING, RepositoryTaskLifecycle.EXECUTING)


class FileSystems:
    """The FSx for Lustre file systems of one account and Region.

    Args:
        client: a boto3 `fsx` client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def region(self) -> str:
        """Return the Region that the calls go to."""
        return str(self._client.meta.region_name)

    def made_by(self, identity: TaskIdentity, *, any_map_index: bool = False) -> list[FileSystem]:
        """Return the file systems that this task instance made, in whichever generation.

        FSx has no filter for tags, so this reads all file systems, a page at a time.
        """
        return [
            _file_system(each)
            for each in self._pages("describe_file_systems", "FileSystems")
            if each["FileSystemType"] == "LUSTRE"
            and made_by(identity, _tags(each), any_map_index=any_map_index)
        ]

    def create(self, request: Mapping[str, Any]) -> FileSystem:
        """Create a file system, or return the one that the same token and request made before.

        Raises:
            FileSystemTokenTaken: the token made one before, with another request.
            FileSystemLimitReached: the account may not have another, or not that large.
            FileSystemRefused: FSx says no, and would again.
        """
        try:
            return _file_system(self._client.create_file_system(**request)["FileSystem"])
        except ClientError as error:
            _raise(error)

    def look(self, file_system_id: str) -> FileSystem | None:
        """Return a file system as it stands, None once it is gone."""
        try:
            found = self._client.describe_file_systems(FileSystemIds=[file_system_id])["FileSystems"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "FileSystemNotFound":
                return None
            raise
        return _file_system(found[0]) if found else None

    def links(self, file_system_id: str) -> list[Link]:
        """Return the data repository associations of a file system."""
        filters = [{"Name": "file-system-id", "Values": [file_system_id]}]
        pages = self._pages("describe_data_repository_associations", "Associations", Filters=filters)
        return [_link(each) for each in pages]

    def link(self, file_system_id: str, path: str, uri: str, *, token: str, tags: Mapping[str, str]) -> Link:
        """Link `path` with the S3 prefix `uri` and import its names, or return the link that is there.

        Raises:
            FileSystemRefused: FSx says no: the path is taken, or the bucket is out of its reach.
        """
        for link in self.links(file_system_id):
            if (link.file_system_path.rstrip("/"), link.uri.rstrip("/")) == (
                path.rstrip("/"),
                uri.rstrip("/"),
            ):
                return link
        try:
            answer = self._client.create_data_repository_association(
                FileSystemId=file_system_id,
                FileSystemPath=path,
                DataRepositoryPath=uri,
                BatchImportMetaDataOnCreate=True,  # FSx's default leaves the directory empty
                ClientRequestToken=token,
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
            )
        except ClientError as error:
            _raise(error)
        return _link(answer["Association"])

    def look_link(self, association_id: str) -> Link | None:
        """Return an association as it stands, None once it is gone."""
        try:
            found = self._client.describe_data_repository_associations(AssociationIds=[association_id])
        except ClientError as error:
            if error.response["Error"]["Code"] in ("DataRepositoryAssociationNotFound", "FileSystemNotFound"):
                return None
            raise
        return _link(found["Associations"][0])

    def remove(self, file_system_id: str) -> str | None:
        """Bring a deletion one step further; call it until it returns None: the file system is gone.

        Cancels the data repository tasks that FSx would refuse the deletion for. Makes no final backup.

        Returns:
            `DELETING`, or what FSx refused with and is worth asking again, or None.
        """
        file_system = self.look(file_system_id)
        if file_system is None:
            return None
        if file_system.lifecycle is FileSystemLifecycle.DELETING:
            return str(file_system.lifecycle)
        self._cancel_tasks(file_system_id)
        try:
            self._client.delete_file_system(FileSystemId=file_system_id)
        except ClientError as error:
            details = error.response["Error"]
            if details["Code"] == "FileSystemNotFound":
                return None
            if details["Code"] == "BadRequest":  # a task is still ending, or the creation is not over
                return str(details["Message"])
            raise
        return str(FileSystemLifecycle.DELETING)

    def _cancel_tasks(self, file_system_id: str) -> None:
        filters = [
            {"Name": "file-system-id", "Values": [file_system_id]},
            {"Name": "task-lifecycle", "Values": [str(state) for state in RUNNING_TASKS]},
        ]
        for task in self._pages("describe_data_repository_tasks", "DataRepositoryTasks", Filters=filters):
            try:
                self._client.cancel_data_repository_task(TaskId=task["TaskId"])
            except ClientError as error:
                if error.response["Error"]["Code"] not in _ENDED:
                    raise

    def _pages(self, operation: str, name: str, **request: Any) -> Iterator[dict[str, Any]]:
        """Yield every item of a Describe call; botocore has no paginator for two of them."""
        while True:
            answer = getattr(self._client, operation)(**request)
            yield from answer[name]
            if not answer.get("NextToken"):
                return
            request["NextToken"] = answer["NextToken"]


_ENDED = ("DataRepositoryTaskEnded", "DataRepositoryTaskNotFound")


def _raise(error: ClientError) -> NoReturn:
    details = error.response["Error"]
    match details["Code"]:
        case "IncompatibleParameterError":
            raise FileSystemTokenTaken(details["Message"]) from error
        case "ServiceLimitExceeded":
            limit: Any = error.response.get("Limit", "")
            raise FileSystemLimitReached(str(limit), details["Message"]) from error
        case code if code in REFUSALS:
            raise FileSystemRefused(code, details["Message"]) from error
    raise error


def _tags(answer: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in answer.get("Tags", ())}


def _file_system(answer: Mapping[str, Any]) -> FileSystem:
    lustre = answer.get("LustreConfiguration", {})
    file_system_id = answer["FileSystemId"]
    legacy = lustre.get("DataRepositoryConfiguration")
    return FileSystem(
        file_system_id=file_system_id,
        lifecycle=_state(FileSystemLifecycle, answer["Lifecycle"], file_system_id),
        mount_name=lustre.get("MountName", ""),
        dns_name=answer.get("DNSName", ""),
        deployment_type=lustre.get("DeploymentType", ""),
        storage_type=answer.get("StorageType", ""),
        storage_capacity_gib=answer.get("StorageCapacity", 0),
        per_unit_storage_throughput=lustre.get("PerUnitStorageThroughput"),
        type_version=answer.get("FileSystemTypeVersion", ""),
        subnet_ids=tuple(answer.get("SubnetIds", ())),
        tags=_tags(answer),
        created_at=answer["CreationTime"].timestamp(),
        failure=answer.get("FailureDetails", {}).get("Message", ""),
        legacy_link=_legacy_link(legacy, file_system_id) if legacy and "ImportPath" in legacy else None,
    )


def _legacy_link(answer: Mapping[str, Any], file_system_id: str) -> Link:
    return Link(
        association_id=None,
        # the file keeps its whole key: the prefix only chooses what is imported
        file_system_path="/" + answer["ImportPath"].removeprefix("s3://").partition("/")[2].rstrip("/"),
        uri=answer["ImportPath"],
        lifecycle=_state(RepositoryLifecycle, answer["Lifecycle"], file_system_id),
        failure=answer.get("FailureDetails", {}).get("Message", ""),
    )


def _link(answer: Mapping[str, Any]) -> Link:
    return Link(
        association_id=answer["AssociationId"],
        file_system_path=answer.get("FileSystemPath", "/"),
        uri=answer["DataRepositoryPath"],
        lifecycle=_state(RepositoryLifecycle, answer["Lifecycle"], answer["AssociationId"]),
        failure=answer.get("FailureDetails", {}).get("Message", ""),
    )


def _state(states: type[State], value: str, name: str) -> State:
    try:
        return states(value)
    except ValueError as error:
        raise UnexpectedAnswer(f"{name} has the state {value!r}") from error
