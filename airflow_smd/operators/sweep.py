"""What nobody needs any more and is billed still: found, reported, and removed on request."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_smd.domain.sweep import Action, Decision, Kind, Policy, RunState, decide, report, runs_to_ask_for
from airflow_smd.errors import Problem, SweepIncomplete, TaskTimedOut, refuse
from airflow_smd.operators.base import SmdOperator, known_at_parse

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_smd.aws.sweep import BilledThings
    from airflow_smd.domain.sweep import DagRun, Thing

OVER = ["success", "failed"]
"""States of a DAG run that is over; a state that we do not know counts as alive."""


class SweepOperator(SmdOperator):
    """Find what this package started and nobody needs any more, say what it costs, remove it on request.

    Finds by their tags the FSx file systems, training jobs, processing jobs and image builds of the
    connection's account and Region. An orphan is a thing whose DAG run is over, or whose time to live has
    passed. The task looks, waits for the grace period, looks again, and removes what is an orphan still: a
    run that was cleared meanwhile keeps its things. Of things of another deployment, or of a run that this
    Airflow does not know, it only tells; a time to live removes the latter if their tags name our
    `[smd] deployment`. What carries no tags of ours is never touched.

    Args:
        grace_seconds: how long an orphan is left.
        dry_run: only report.
        time_to_live_seconds: age at which a thing is an orphan even if its run is not over; default: none. A
            thing's tag `airflow-smd:time_to_live_seconds` counts more, and lets it outlive its run.

    Returns:
        `dry_run`, `found` and `unneeded` (counts), `usd_per_day` (of the unneeded, as far as their prices are
        known; `no_price_for` says which are not), `removed` (ids) and `things`, each with `kind`, `id`,
        `action` (`keep`, `report`, `wait`, `remove`), `reason`, `usd_per_day`, `created_at` and `tags`.

    Raises:
        SweepIncomplete: something could not be listed or removed; the rest was.
        TaskTimedOut: `execution_timeout` passed during the grace period; nothing more was removed.
    """

    template_fields: Sequence[str] = ("grace_seconds", "only_report", "time_to_live_seconds")

    def __init__(
        self,
        *,
        grace_seconds: float | str = 3600.0,
        dry_run: bool | str = True,
        time_to_live_seconds: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.grace_seconds = grace_seconds
        self.only_report = dry_run  # `dry_run` itself is a method of Airflow's operators
        self.time_to_live_seconds = time_to_live_seconds
        self._read()

    @cached_property
    def things(self) -> BilledThings:
        """Return what finds and removes the billed things of our connection."""
        from airflow_smd.hooks.sweep import billed_things

        return billed_things(self.connection)

    def execute(self, context: Context) -> Any:
        """Look, remove what is due, and wait for what is not."""
        from airflow_smd.triggers.sweep import GraceTrigger

        policy, dry_run = self._policy(context)
        decisions, failures = self._look(context, policy, {})
        removed = {} if dry_run else self._remove(decisions, failures)
        first_seen = {
            each.thing.thing_id: each.orphan_since
            for each in decisions
            if each.action is Action.WAIT and each.orphan_since is not None
        }
        if dry_run or not first_seen:
            return self._told(decisions, removed, failures, dry_run=dry_run)
        until = max(first_seen.values()) + policy.grace_seconds
        self.log.info(
            "Waiting for %.0f s, the longest grace of %d orphans", until - time.time(), len(first_seen)
        )
        trigger = GraceTrigger(until=until, first_seen=first_seen, removed=removed, **self.waiting())
        return self.wait(context, trigger, "finish")

    def finish(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Look again after the grace period, and remove what is an orphan still."""
        if event.get("timeout"):
            limit = f"execution_timeout={self.execution_timeout}"
            raise TaskTimedOut(f"{limit} is shorter than the grace period; nothing more was removed")
        policy, dry_run = self._policy(context)
        decisions, failures = self._look(context, policy, event["first_seen"])
        removed = self._remove(decisions, failures)
        return self._told(decisions, {**event["removed"], **removed}, failures, dry_run=dry_run)

    def _read(self) -> dict[str, Any]:
        return _arguments(
            grace_seconds=self.grace_seconds,
            dry_run=self.only_report,
            time_to_live_seconds=self.time_to_live_seconds,
        )

    def _policy(self, context: Context) -> tuple[Policy, bool]:
        read = self._read()
        policy = Policy(
            deployment=self.identity(context).deployment,
            grace_seconds=read["grace_seconds"],
            time_to_live_seconds=read["time_to_live_seconds"],
        )
        return policy, read["dry_run"]

    def _look(
        self, context: Context, policy: Policy, first_seen: Mapping[str, float]
    ) -> tuple[tuple[Decision, ...], list[str]]:
        """Return what is there with what becomes of it, and which kinds could not be listed."""
        things: list[Thing] = []
        failures: list[str] = []
        for kind in Kind:
            try:
                things += self.things.find(kind, now=time.time())
            except Exception as error:  # one service that we may not list keeps no orphan of another alive
                self.log.exception("Cannot list every %s", kind)
                failures.append(f"cannot list every {kind}: {error}")
        # after the listing, which is slow: a run that was cleared meanwhile is alive
        runs = {run: self._state(context, run) for run in runs_to_ask_for(things, policy.deployment)}
        return decide(things, runs, policy, now=time.time(), first_seen=first_seen), failures

    def _state(self, context: Context, run: DagRun) -> RunState:
        """Ask Airflow's API, by the one question that does not fail on a run that it does not know."""
        dag_id, run_id = run
        ti = context["ti"]
        if ti.get_dr_count(dag_id=dag_id, run_ids=[run_id], states=OVER):
            return RunState.OVER
        return RunState.ALIVE if ti.get_dr_count(dag_id=dag_id, run_ids=[run_id]) else RunState.UNKNOWN

    def _remove(self, decisions: Sequence[Decision], failures: list[str]) -> dict[str, str]:
        removed: dict[str, str] = {}
        for thing in (each.thing for each in decisions if each.action is Action.REMOVE):
            try:
                removed[thing.thing_id] = self.things.remove(thing)
                self.log.info("Removing %s %s: %s", thing.kind, thing.thing_id, removed[thing.thing_id])
            except Exception as error:
                self.log.exception("Cannot remove %s %s", thing.kind, thing.thing_id)
                failures.append(f"cannot remove {thing.kind} {thing.thing_id}: {error}")
        return removed

    def _told(
        self,
        decisions: Sequence[Decision],
        removed: Mapping[str, str],
        failures: Sequence[str],
        *,
        dry_run: bool,
    ) -> dict[str, Any]:
        """Log and return the report, or raise if it cannot be the whole of it."""
        told = report(decisions, removed=removed, dry_run=dry_run)
        for decision in decisions:
            self.log.info("%s", decision)
        self.log.info(
            "%d things, %d of them unneeded, which cost $%.2f a day%s; %d removed%s",
            told["found"],
            told["unneeded"],
            told["usd_per_day"],
            f" and what has no price ({', '.join(told['no_price_for'])})" if told["no_price_for"] else "",
            len(removed),
            " (dry run)" if dry_run else "",
        )
        if failures:
            raise SweepIncomplete(failures)
        return told


def _arguments(**given: Any) -> dict[str, Any]:
    """Return the arguments that are known by now as values; refuse all that are none at once."""
    known = {name: value for name, value in given.items() if known_at_parse(value)}
    read: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in known.items():
        text = str(value).strip().lower()
        if name == "dry_run":
            read[name] = text == "true"
            if text not in ("true", "false"):
                problems.append(_problem(name, value, "True or False is needed.", "Write one of them."))
        elif name == "time_to_live_seconds" and text in ("none", ""):
            read[name] = None
        else:
            read[name] = _seconds(value)
            if read[name] is None:
                problems.append(
                    _problem(name, value, "A number of seconds from 0 is needed.", "Write one such as 3600.")
                )
    refuse(problems)
    return read


def _seconds(value: Any) -> float | None:
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < math.inf else None


def _problem(field: str, value: Any, message: str, remedy: str) -> Problem:
    rule = f"sweep-{field.replace('_', '-')}"
    return Problem(rule=rule, field=field, value=value, message=message, remedy=remedy)
