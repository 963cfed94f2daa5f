"""What every operator here shares: its AWS connection, its identity, and one way to wait."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_smd.domain.identity import TaskIdentity, generation
from airflow_smd.errors import Problem, Severity, SmdError, refuse

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_smd.hooks.connection import AwsConnection
    from airflow_smd.triggers.base import WaitTrigger


class SmdOperator(BaseOperator):
    """A task that acts on AWS and waits for it.

    Args:
        aws_conn_id: Airflow connection of type `aws`.
        region_name: AWS Region; default: the connection's.
        verify: TLS verification, as boto3 takes it.
        botocore_config: arguments of `botocore.config.Config`.
        deferrable: wait in the triggerer; default: `[operators] default_deferrable`.
        poll_seconds: pause between two looks at AWS, in seconds; default: `[smd] poll_seconds`, 30.
    """

    def __init__(
        self,
        *,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        verify: bool | str | None = None,
        botocore_config: Mapping[str, Any] | None = None,
        deferrable: bool | None = None,
        poll_seconds: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.verify = verify
        self.botocore_config = botocore_config
        self.deferrable = deferrable
        self._poll_seconds = poll_seconds
        if poll_seconds is not None and not poll_seconds >= 0:
            message, remedy = "A pause cannot be negative.", "Give seconds such as 30."
            refuse(
                [
                    Problem(
                        rule="poll-seconds",
                        field="poll_seconds",
                        value=poll_seconds,
                        message=message,
                        remedy=remedy,
                    )
                ]
            )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let the errors of `execute` tell Airflow whether another try makes sense."""
        super().__init_subclass__(**kwargs)
        if "execute" in cls.__dict__:
            execute = cls.__dict__["execute"]

            @wraps(execute)
            def execute_once(self: SmdOperator, *args: Any, **kwargs: Any) -> Any:
                with _fails_at_once():
                    return execute(self, *args, **kwargs)

            cls.execute = execute_once  # type: ignore[assignment]

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after a deferral; as for `execute`, the errors say whether another try makes sense."""
        with _fails_at_once():
            return super().resume_execution(next_method, next_kwargs, context)

    @property
    def poll_seconds(self) -> float:
        """Return the pause between two looks at AWS."""
        from airflow.providers.common.compat.sdk import conf

        if self._poll_seconds is not None:
            return self._poll_seconds
        return float(conf.getfloat("smd", "poll_seconds", fallback=30.0))

    @cached_property
    def connection(self) -> AwsConnection:
        """Return where the calls of this task go."""
        from airflow_smd.hooks.connection import AwsConnection

        return AwsConnection(
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            verify=self.verify,
            botocore_config=self.botocore_config,
        )

    def identity(self, context: Context) -> TaskIdentity:
        """Return who we are, the same for every retry and another after a clear."""
        from airflow.providers.common.compat.sdk import conf

        ti = context["ti"]
        return TaskIdentity(
            dag_id=ti.dag_id,
            run_id=ti.run_id,
            task_id=ti.task_id,
            map_index=-1 if ti.map_index is None else ti.map_index,
            generation=generation(max_tries=ti.max_tries, retries=self.retries or 0),
            deployment=conf.get("smd", "deployment", fallback=""),
        )

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Log warnings and notes, then raise InvalidInput if there are errors."""
        found = list(problems)
        for problem in found:
            match problem.severity:
                case Severity.WARNING:
                    self.log.warning("%s", problem)
                case Severity.NOTE:
                    self.log.info("%s", problem)
        refuse(found)

    def waiting(self, at_most_seconds: float = math.inf) -> dict[str, Any]:
        """Return the arguments that every trigger takes.

        Args:
            at_most_seconds: longest wait; `execution_timeout` counts too, which Airflow itself does not
                enforce while a task is deferred.
        """
        if self.execution_timeout is not None:
            at_most_seconds = min(at_most_seconds, self.execution_timeout.total_seconds())
        return {
            "connection": self.connection.serialize(),
            "poll_seconds": self.poll_seconds,
            "deadline": None if math.isinf(at_most_seconds) else time.time() + at_most_seconds,
        }

    def wait(self, context: Context, trigger: WaitTrigger, method_name: str) -> Any:
        """Wait with `trigger`, then go on in `method_name(context, event)`: in the triggerer or here."""
        from airflow.providers.common.compat.sdk import conf

        deferrable = self.deferrable
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        if deferrable:
            self.defer(trigger=trigger, method_name=method_name)
        event = asyncio.run(_first(trigger))
        return getattr(self, method_name)(context, event)


def known_at_parse(value: Any) -> bool:
    """Return whether a value is known when the DAG is parsed: no template, no other task's output."""
    if isinstance(value, Mapping):
        return all(map(known_at_parse, value.values()))
    if isinstance(value, (list, tuple, set)):
        return all(map(known_at_parse, value))
    return not hasattr(value, "iter_references") and re.search("{{|{%", str(value)) is None


def folder_problems(**uris: Any) -> list[Problem]:
    """Return which of these arguments, known at DAG parse, are no folder in S3."""
    return [
        Problem(
            rule="s3-uri",
            field=name,
            value=uri,
            message="A folder in S3 is needed.",
            remedy="Write s3://bucket/prefix.",
        )
        for name, uri in uris.items()
        if known_at_parse(uri) and not re.match("s3://[^/]", str(uri))
    ]


def job_problems(estimator: str, job: Any, inputs: Any = None, silenced: Iterable[str] = ()) -> list[Problem]:
    """Return what is wrong with a job that is known at DAG parse; images and Region are looked at later."""
    if not (known_at_parse(job) and known_at_parse(inputs)):
        return []
    from airflow_smd.domain.distribution import Catalogue, Job, lint

    parsed = Job.parse({"estimator": estimator, "kwargs": job, "fit": inputs})
    return as_arguments(lint(parsed, Catalogue(), silenced={"region-missing", *silenced}))


def as_arguments(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems of a job under the names of our operators' arguments, not the SDK's."""
    names = {"kwargs": "job", "fit": "inputs"}
    return [
        replace(problem, field=re.sub(r"^(kwargs|fit)\b", lambda found: names[found[0]], problem.field))
        for problem in problems
    ]


async def _first(trigger: WaitTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("a trigger fires once")


@contextmanager
def _fails_at_once() -> Iterator[None]:
    """Turn an error that no retry can mend into one that Airflow does not retry, of the same type still."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    try:
        yield
    except SmdError as error:
        if error.worth_a_retry or isinstance(error, AirflowFailException):
            raise
        final = type(
            type(error).__name__, (type(error), AirflowFailException), {"__module__": type(error).__module__}
        )
        error.__class__ = final
        raise
