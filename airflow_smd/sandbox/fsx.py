# ruff: noqa: D102 - the actions are documented by AWS, the work behind them in fsx_service and fsx_links
"""Amazon FSx for Lustre in the sandbox: a real directory behind the real API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moto.ec2.models import ec2_backends
from moto.fsx import urls
from moto.fsx.responses import FSxResponse

from airflow_smd.sandbox.fsx_files import inside
from airflow_smd.sandbox.fsx_links import Links
from airflow_smd.sandbox.fsx_rules import Refused
from airflow_smd.sandbox.fsx_service import Service, page
from airflow_smd.sandbox.fsx_state import State
from airflow_smd.sandbox.fsx_tasks import Tasks
from airflow_smd.sandbox.runtime import ACCOUNT_ID, Runtime


def register(runtime: Runtime) -> None:
    """Answer FSx calls, and tell the other services where a file system's directory is."""
    state = State(runtime.directory("fsx") / "state.json")
    links = Links(runtime, state)
    tasks = Tasks(runtime, state, links)
    service = Service(runtime, state, links)
    runtime.own_state.add("fsx")
    runtime.file_system_directory = lambda file_system_id, path: _directory(
        service, state, file_system_id, path
    )
    runtime.at_stop(links.stop)
    open_default_groups(runtime.settings.region)
    Responses.service, Responses.links, Responses.tasks, Responses.state = service, links, tasks, state
    urls.url_paths["{0}/$"] = Responses.dispatch
    links.resume()
    tasks.resume()


def open_default_groups(region: str) -> None:
    """Let members of a VPC's default security group reach each other: AWS's default, which moto lacks."""
    ec2 = ec2_backends[ACCOUNT_ID][region]
    for groups in ec2.groups.values():
        for group in groups.values():
            if group.name == "default" and not group.ingress_rules:
                ec2.authorize_security_group_ingress(
                    group.id, "-1", None, None, [], source_groups=[{"GroupId": group.id}], vpc_id=group.vpc_id
                )


def _directory(service: Service, state: State, file_system_id: str, path: str) -> Path:
    service.advance()
    record = state.file_systems.get(file_system_id)
    if record is None:
        raise KeyError(f"There is no file system {file_system_id}.")
    mount_name = record["answer"]["LustreConfiguration"]["MountName"]
    mount, _, below = path.removeprefix("/").partition("/")
    if not path.startswith("/") or mount != mount_name:
        raise KeyError(
            f"DirectoryPath {path!r} of {file_system_id} must begin with its mount name: /{mount_name}/..."
        )
    if record["answer"]["Lifecycle"] not in ("AVAILABLE", "UPDATING"):
        raise KeyError(f"{file_system_id} is {record['answer']['Lifecycle']}, not AVAILABLE.")
    directory = inside(service.directory(file_system_id), below)
    if not directory.is_dir():
        raise KeyError(f"{file_system_id} has no directory /{below}: link it, or write it first.")
    return directory


class Responses(FSxResponse):
    """One method an API action; moto finds it by the action's name in snake case."""

    service: Service
    links: Links
    tasks: Tasks
    state: State

    def _request(self) -> dict[str, Any]:
        request: dict[str, Any] = json.loads(self.body)
        return request

    def create_file_system(self) -> str:
        return json.dumps(self.service.create_file_system(self._request(), self.region))

    def describe_file_systems(self) -> str:
        return json.dumps(self.service.describe_file_systems(self._request(), self.region))

    def update_file_system(self) -> str:
        return json.dumps(self.service.update_file_system(self._request(), self.region))

    def delete_file_system(self) -> str:
        return json.dumps(self.service.delete_file_system(self._request(), self.region))

    def _owner(self, request: dict[str, Any]) -> dict[str, Any]:
        self.service.advance()
        return self.service.find(request["FileSystemId"], self.region)

    def create_data_repository_association(self) -> str:
        request = self._request()
        return json.dumps(self.links.create(request, self._owner(request)))

    def update_data_repository_association(self) -> str:
        return json.dumps(self.links.update(self._request()))

    def delete_data_repository_association(self) -> str:
        return json.dumps(self.links.delete(self._request()))

    def describe_data_repository_associations(self) -> str:
        return self._list("Associations", "AssociationIds", self.state.associations, self.links.association)

    def create_data_repository_task(self) -> str:
        request = self._request()
        return json.dumps(self.tasks.create(request, self._owner(request)))

    def cancel_data_repository_task(self) -> str:
        return json.dumps(self.tasks.cancel(self._request()["TaskId"]))

    def describe_data_repository_tasks(self) -> str:
        return self._list("DataRepositoryTasks", "TaskIds", self.state.tasks, self.tasks.task)

    def _list(
        self,
        name: str,
        ids_name: str,
        records: dict[str, dict[str, Any]],
        find: Callable[[str], dict[str, Any]],
    ) -> str:
        request = self._request()
        wanted = {each["Name"]: set(each["Values"]) for each in request.get("Filters", ())}
        with self.state.lock:
            self.service.advance()
            for file_system_id in wanted.get("file-system-id", ()):
                self.service.find(file_system_id, self.region)
            ids = request.get(ids_name)
            found = [find(each)["answer"] for each in ids] if ids else [r["answer"] for r in records.values()]
            if "file-system-id" in wanted:
                found = [each for each in found if each["FileSystemId"] in wanted["file-system-id"]]
            if "task-lifecycle" in wanted:
                found = [each for each in found if each["Lifecycle"] in wanted["task-lifecycle"]]
            return json.dumps(page(name, found, request))

    def _tagged(self, arn: str) -> dict[str, Any]:
        for records in (self.state.file_systems, self.state.associations, self.state.tasks):
            for record in records.values():
                if record["answer"]["ResourceARN"] == arn:
                    answer: dict[str, Any] = record["answer"]
                    return answer
        raise Refused("ResourceNotFound", f"{arn} does not exist.")

    def tag_resource(self) -> str:
        return self._change_tags(lambda tags, request: tags | _as_dict(request["Tags"]))

    def untag_resource(self) -> str:
        return self._change_tags(
            lambda tags, request: {k: v for k, v in tags.items() if k not in request["TagKeys"]}
        )

    def _change_tags(self, change: Callable[[dict[str, str], dict[str, Any]], dict[str, str]]) -> str:
        request = self._request()
        with self.state.lock:
            answer = self._tagged(request["ResourceARN"])
            tags = change(_as_dict(answer.get("Tags", [])), request)
            answer["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
            self.state.save()
        return json.dumps({})

    def list_tags_for_resource(self) -> str:
        with self.state.lock:
            return json.dumps({"Tags": self._tagged(self._request()["ResourceARN"]).get("Tags", [])})


def _as_dict(tags: list[dict[str, str]]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags}
