"""An FSx for Lustre file system for one run: sized, made once, filled, and gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_smd.domain.lustre import create_request
from airflow_smd.domain.lustre.arguments import ARGUMENTS, Reading, read_config, read_dataset, security_groups
from airflow_smd.domain.lustre.lifecycle import (
    DATASET_PATH,
    Attach,
    Create,
    FileSystem,
    Readiness,
    creation_timeout_seconds,
    next_step,
    readiness,
)
from airflow_smd.domain.lustre.order import Order, read_order, result, result_without
from airflow_smd.errors import FileSystemBroken, FileSystemLate, Problem, Severity, SmdError, refuse
from airflow_smd.operators.base import SmdOperator, known_at_parse

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_smd.domain.identity import TaskIdentity
    from airflow_smd.hooks.lustre import LustreHook

DELETION_TIMEOUT_SECONDS = 3600.0
LINK_TIMEOUT_SECONDS = 3600.0
"""Filling a link was seen to take more than ten minutes; it is paced by the number of objects."""


class LustreOperator(SmdOperator):
    """What the two file-system tasks share."""

    @cached_property
    def hook(self) -> LustreHook:
        """Return what we need of AWS."""
        from airflow_smd.hooks.lustre import LustreHook

        return LustreHook(self.connection)


class LustreCreateOperator(LustreOperator):
    """Size a file system from the data set, create it exactly once, link the data set, return the channel.

    Use it as a setup task, with :class:`LustreDeleteOperator` as its teardown::

        create = LustreCreateOperator(task_id="create", ...).as_setup()
        delete = LustreDeleteOperator(task_id="delete", file_system=create.output)
        create >> train >> delete.as_teardown(setups=create)

    A retry finds the file system by its tag. Airflow runs a teardown only if its setup succeeded, so this
    task deletes its file system itself when it is killed or fails without a retry to follow.

    Args:
        dataset: a manifest, as the preprocess task returns it, or `{"uri": "s3://...", "bytes": "100GB"}`.
        nodes: training instances.
        subnet_id: where the file system and the training job will be.
        security_group_ids: of both; TCP 988 and 1018-1023 must be open among the members.
        instance_type: of the training instances; tells memory, GPUs and price.
        epoch_seconds: time of an epoch in which data never keeps a GPU waiting.
        epochs: of the run.
        need: further fields of `domain.lustre.Need`: `mbps_per_gpu`, `checkpoint_bytes`, `access`, ...
        plan: fields of `domain.lustre.LustreConfig`, to choose the file system yourself.
        when_not_worth_it: `create` one all the same, or `skip` it and read from S3.

    Returns:
        `file_system_id`, `mount_name`, `dns_name`, `vpc_config`, `data_source`, `input_mode`, `plan`
        (with `why` and `usd_per_hour`), `created_at`. When skipped, the first three are None and
        `data_source` is the S3 prefix.

    Raises:
        InvalidInput: something is wrong with the request, the network or the bucket; nothing was created.
        FileSystemRefused: FSx said no; another try would end the same.
        FileSystemLimitReached: a quota is used up.
        FileSystemBroken: FSx could not create or fill it; the next try makes another.
        FileSystemLate: it took more than three times the usual time.
    """

    template_fields: Sequence[str] = (
        "dataset",
        "nodes",
        "subnet_id",
        "security_group_ids",
        "instance_type",
        "epoch_seconds",
        "epochs",
        "need",
        "plan",
    )
    template_fields_renderers = {"dataset": "json", "need": "json", "plan": "json"}  # noqa: RUF012

    def __init__(
        self,
        *,
        dataset: Any,
        nodes: int | str,
        subnet_id: str,
        security_group_ids: Sequence[str] | str,
        instance_type: str | None = None,
        epoch_seconds: float | str | None = None,
        epochs: int | str = 10,
        need: Mapping[str, Any] | None = None,
        plan: Mapping[str, Any] | None = None,
        when_not_worth_it: str = "create",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dataset = dataset
        self.nodes = nodes
        self.subnet_id = subnet_id
        self.security_group_ids = security_group_ids
        self.instance_type = instance_type
        self.epoch_seconds = epoch_seconds
        self.epochs = epochs
        self.need = need
        self.plan = plan
        self.when_not_worth_it = when_not_worth_it
        self._identity: TaskIdentity | None = None
        reading = Reading()
        for name, how in ARGUMENTS.items():
            if known_at_parse(getattr(self, name)):
                reading.read(name, getattr(self, name), *how)
        if known_at_parse(dataset):
            read_dataset(dataset, reading)
        if plan is not None and known_at_parse(plan):
            read_config(plan, reading)
        refuse(reading.problems)

    def execute(self, context: Context) -> Any:
        """Follow the file system of this task, or check and create it; then wait for it."""
        order, problems = self._order()
        if order and order.config is None and not problems:
            self._say(order)
            return result_without(order)
        with self._leaving_nothing(context):
            identity = self.identity(context)
            step = next_step(identity, self.hook.file_systems.made_by(identity))
            if isinstance(step, Create):
                problems += self._place_problems(order)
            file_system = self._obtain(step, _checked(order, problems), identity)
            return self._wait(context, "link", file_system)

    def link(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Link the data set once the file system is available, and wait until its names are imported."""
        with self._leaving_nothing(context):
            file_system = self._arrived(context, event)
            order = _checked(*self._order())
            if not order.associated:
                return self._ready(file_system, order)
            identity = self.identity(context)
            link = self.hook.file_systems.link(
                file_system.file_system_id,
                DATASET_PATH,
                order.dataset.uri,
                token=f"{identity.base_name}-l1",
                tags=identity.tags,
            )
            self.log.info("Linking %s with %s (%s)", link.file_system_path, link.uri, link.association_id)
            return self._wait(context, "finish", file_system, association_id=link.association_id)

    def finish(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the training channel and the plan."""
        with self._leaving_nothing(context):
            return self._ready(self._arrived(context, event), _checked(*self._order()))

    def on_kill(self) -> None:
        """Delete the file system when the worker's task is killed: no teardown follows a failed setup."""
        if self._identity:
            self._remove_all(self._identity)

    # -- before ------------------------------------------------------------------------------------------

    def _order(self) -> tuple[Order | None, list[Problem]]:
        arguments = {name: getattr(self, name) for name in (*self.template_fields, "when_not_worth_it")}
        order, problems = read_order(arguments, self.hook.file_systems.region)
        for problem in problems:
            if problem.severity is not Severity.ERROR:
                self.log.warning("%s", problem)
        return order, problems

    def _place_problems(self, order: Order | None) -> list[Problem]:
        """Return what is wrong with the network and the data; what we may not look at is left to FSx."""
        from botocore.exceptions import ClientError

        found: list[Problem] = []
        try:
            if group_ids := _groups(self.security_group_ids):
                found += self.hook.place_problems(
                    self.subnet_id,
                    group_ids,
                    addresses=order.addresses if order else 0,
                    efa=bool(order and order.config and order.config.efa),
                )
            if order:
                found += self.hook.dataset_problems(order.dataset.uri)
        except ClientError as error:
            self.log.warning("Cannot check everything before the creation: %s", error)
        return found

    # -- create ------------------------------------------------------------------------------------------

    def _obtain(self, step: Attach | Create, order: Order, identity: TaskIdentity) -> FileSystem:
        self._identity = identity
        match step:
            case Attach(file_system, surplus):
                for each in surplus:
                    self.log.warning("%s is a second file system of ours; deleting it", each.file_system_id)
                    self.hook.file_systems.remove(each.file_system_id)
                self.log.info(
                    "Following %s, which is already there: %s",
                    file_system.file_system_id,
                    _shape(file_system),
                )
                return file_system
            case Create(token):
                assert order.config is not None  # noqa: S101 - execute skips it
                self._say(order)
                request = create_request(
                    order.config,
                    subnet_id=self.subnet_id,
                    security_group_ids=security_groups(self.security_group_ids),
                    tags=identity.tags,
                    client_request_token=token,
                )
                file_system = self.hook.file_systems.create(request)
                self.log.info("Creating %s, %s", file_system.file_system_id, _shape(file_system))
                return file_system

    def _say(self, order: Order) -> None:
        for reason in order.plan["why"]:
            self.log.info("%s", reason)

    def _ready(self, file_system: FileSystem, order: Order) -> dict[str, Any]:
        self.log.info("%s is ready, %s", file_system.file_system_id, _shape(file_system))
        return result(order, file_system, security_groups(self.security_group_ids))

    def _wait(
        self, context: Context, method_name: str, file_system: FileSystem, association_id: str | None = None
    ) -> Any:
        from airflow_smd.triggers.lustre import FileSystemTrigger

        seconds = creation_timeout_seconds(file_system.storage_capacity_gib)
        trigger = FileSystemTrigger(
            file_system_id=file_system.file_system_id,
            association_id=association_id,
            **self.waiting(LINK_TIMEOUT_SECONDS if association_id else seconds),
        )
        return self.wait(context, trigger, method_name)

    def _arrived(self, context: Context, event: Mapping[str, Any]) -> FileSystem:
        """Return the file system that we waited for; one that failed goes at once."""
        self._identity = self.identity(context)
        if event.get("timeout"):
            raise FileSystemLate("The file system or its link was not ready in time.")
        file_system_id = event["file_system_id"]
        if not event["ready"]:
            self.hook.file_systems.remove(file_system_id)
            raise FileSystemBroken(event["name"], event["state"], event["failure"])
        file_system = self.hook.file_systems.look(file_system_id)
        if file_system is None:
            raise FileSystemBroken(file_system_id, "gone", "It was deleted while the task waited for it.")
        imported = file_system.legacy_link
        if imported and readiness(imported.lifecycle) is Readiness.BROKEN:
            self.hook.file_systems.remove(file_system_id)
            raise FileSystemBroken(imported.uri, str(imported.lifecycle), imported.failure)
        return file_system

    # -- after -------------------------------------------------------------------------------------------

    @contextmanager
    def _leaving_nothing(self, context: Context) -> Iterator[None]:
        """Delete our file systems if this try fails and no other follows."""
        from airflow.providers.common.compat.sdk import AirflowFailException

        try:
            yield
        except Exception as error:
            ti = context["ti"]
            final = isinstance(error, AirflowFailException) or (
                isinstance(error, SmdError) and not error.worth_a_retry
            )
            if final or ti.try_number > ti.max_tries:
                self._remove_all(self.identity(context))
            raise

    def _remove_all(self, identity: TaskIdentity) -> None:
        try:
            for file_system in self.hook.file_systems.made_by(identity):
                state = self.hook.file_systems.remove(file_system.file_system_id)
                self.log.info(
                    "Deleting %s, since no teardown follows: %s", file_system.file_system_id, state or "gone"
                )
        except Exception:
            self.log.exception("A file system of this task may be left; its tags say %s", identity.tags)


class LustreDeleteOperator(LustreOperator):
    """Delete the file systems of a create task of this run, and wait until they are gone.

    Finds them by the create task's result and, since a create task may have crashed before it had one, by
    the tags that it puts on them. Cancels the data repository tasks that would keep FSx from deleting. There
    being nothing to delete is success.

    Args:
        file_system: the create task's `output` (or its result, or a file system's id).
        create_task_id: task id of the create task; default: the task of `file_system`.

    Returns:
        `{"deleted": [ids]}`.

    Raises:
        FileSystemLate: FSx still had one after an hour; the next try goes on.
    """

    template_fields: Sequence[str] = ("file_system",)

    def __init__(self, *, file_system: Any = None, create_task_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file_system = file_system
        source = getattr(file_system, "operator", None)
        self.create_task_id = create_task_id or (source.task_id if source else None)
        if file_system is None and self.create_task_id is None:
            refuse([_NOTHING_NAMED])

    def execute(self, context: Context) -> Any:
        """Ask for the deletion of everything of this run at once, then wait."""
        ids = list(dict.fromkeys([*_ids(self.file_system), *self._tagged(context)]))
        left = [each for each in ids if self.hook.file_systems.remove(each) is not None]
        if not left:
            self.log.info("%s", f"Gone: {', '.join(ids)}" if ids else "There is no file system to delete")
            return {"deleted": ids}
        self.log.info("Deleting %s", ", ".join(left))
        from airflow_smd.triggers.lustre import DeletionTrigger

        trigger = DeletionTrigger(file_system_ids=ids, **self.waiting(DELETION_TIMEOUT_SECONDS))
        return self.wait(context, trigger, "finish")

    def finish(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return the ids that are gone."""
        if event.get("timeout"):
            raise FileSystemLate(
                "FSx still has a file system of this run, which is billed; see the log above."
            )
        self.log.info("Gone: %s", ", ".join(event["deleted"]))
        return {"deleted": event["deleted"]}

    def _tagged(self, context: Context) -> list[str]:
        if self.create_task_id is None:
            return []
        from dataclasses import replace

        own = self.identity(context)
        creator = replace(own, task_id=self.create_task_id)
        found = self.hook.file_systems.made_by(creator, any_map_index=own.map_index < 0)
        return [each.file_system_id for each in found]


_NOTHING_NAMED = Problem(
    rule="file-system-unnamed",
    field="file_system",
    value=None,
    message="Nothing says which file system to delete.",
    remedy="Give file_system=create.output, or create_task_id.",
)


def _checked(order: Order | None, problems: Sequence[Problem]) -> Order:
    refuse(problems)
    if order is None:
        raise AssertionError("an order that cannot be read has problems")
    return order


def _groups(value: Any) -> tuple[str, ...]:
    try:
        return security_groups(value)
    except (TypeError, ValueError):
        return ()


def _ids(value: Any) -> list[str]:
    """Return the ids in what the create task returned, or what the user gave in its place."""
    if isinstance(value, Mapping):
        value = value.get("file_system_id")
    if isinstance(value, str):
        return [value] if value and value != "None" else []
    return [each for part in value or () for each in _ids(part)]


def _shape(file_system: FileSystem) -> str:
    tier = file_system.per_unit_storage_throughput
    return f"{file_system.deployment_type}, {file_system.storage_capacity_gib} GiB" + (
        f", {tier} MB/s per TiB" if tier else ""
    )
