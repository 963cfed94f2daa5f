"""Which of the things that we are billed for nobody needs any more, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_smd.domain.cost import CostLine, run_cost
from airflow_smd.domain.identity import DEPLOYMENT_TAG, TaskIdentity, as_tag

TIME_TO_LIVE_TAG = "airflow-smd:time_to_live_seconds"
"""On a thing that is meant to outlive its run: how long after its creation, in seconds, it may be kept."""
SECONDS_PER_DAY = 86400.0
DagRun = tuple[str, str]
"""DAG id and run id."""


class Kind(StrEnum):
    """What we start and pay for."""

    FILE_SYSTEM = "file system"
    TRAINING_JOB = "training job"
    PROCESSING_JOB = "processing job"
    BUILD = "build"


class RunState(StrEnum):
    """What Airflow says about the DAG run that started a thing."""

    ALIVE = "alive"
    OVER = "over"
    UNKNOWN = "unknown"
    """Airflow has no such run: it was deleted, or was another Airflow's."""


class Action(StrEnum):
    """What becomes of a thing."""

    KEEP = "keep"
    REPORT = "report"
    """It may be an orphan, but nothing proves that it is ours to remove."""
    WAIT = "wait"
    """An orphan whose grace period is not over."""
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """Something on AWS that costs while it is there, and whose tags name a task of this package."""

    kind: Kind
    thing_id: str
    """A file system's or build's id, a job's name."""
    tags: Mapping[str, str]
    created_at: float
    """Unix time."""
    per_day: CostLine
    """What it costs in a day, at our prices."""

    def owner(self, deployment: str) -> TaskIdentity | None:
        """Return the task of `deployment` that started it, None if another's or the tags do not tell."""
        return TaskIdentity.from_tags(self.tags, deployment)

    def time_to_live_seconds(self) -> float | None:
        """Return how long it may be kept by its own tag; what cannot be read counts as no tag."""
        try:
            seconds = float(self.tags[TIME_TO_LIVE_TAG])
        except (KeyError, ValueError):
            return None
        return seconds if seconds >= 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When an orphan is to be removed."""

    deployment: str
    """`[smd] deployment` of this Airflow."""
    grace_seconds: float
    """How long an orphan is left, counted from when it became one or was first seen to be one."""
    time_to_live_seconds: float | None = None
    """Age at which a thing is an orphan even if its run is alive or unknown; None: no age is too great."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of a thing, and why."""

    thing: Thing
    action: Action
    reason: str
    orphan_since: float | None = None
    """Unix time; None for what is no orphan."""

    def __str__(self) -> str:
        usd = self.thing.per_day.usd
        cost = "no price known" if usd is None else f"${usd:,.2f} a day"
        tags = self.thing.tags
        who = " / ".join(tags.get(f"airflow:{key}", "?") for key in ("dag_id", "run_id", "task_id"))
        return f"{self.action}: {self.thing.kind} {self.thing.thing_id}, {cost}, of {who}: {self.reason}"


def runs_to_ask_for(things: Iterable[Thing], deployment: str) -> list[DagRun]:
    """Return the DAG runs whose state decides over `things`, each once."""
    owners = (thing.owner(deployment) for thing in things)
    return sorted({(owner.dag_id, owner.run_id) for owner in owners if owner})


def decide(
    things: Iterable[Thing],
    runs: Mapping[DagRun, RunState],
    policy: Policy,
    *,
    now: float,
    first_seen: Mapping[str, float],
) -> tuple[Decision, ...]:
    """Return what becomes of each thing.

    Args:
        things: what carries our tags and costs.
        runs: the state of each run that :func:`runs_to_ask_for` names.
        policy: how long orphans are left.
        now: Unix time.
        first_seen: Unix time at which an earlier look found a thing, by its id, to be an orphan.
    """
    return tuple(_decision(thing, runs, policy, now, first_seen) for thing in things)


def _decision(
    thing: Thing,
    runs: Mapping[DagRun, RunState],
    policy: Policy,
    now: float,
    first_seen: Mapping[str, float],
) -> Decision:
    deployment = thing.tags.get(DEPLOYMENT_TAG, "")
    if deployment != as_tag(policy.deployment):
        whose = f"the deployment {deployment!r}" if deployment else "a deployment without a name"
        return Decision(thing=thing, action=Action.REPORT, reason=f"it is of {whose}, not of this one")
    owner = thing.owner(policy.deployment)
    state = runs.get((owner.dag_id, owner.run_id), RunState.UNKNOWN) if owner else RunState.UNKNOWN
    own_limit = thing.time_to_live_seconds()
    limit = policy.time_to_live_seconds if own_limit is None else own_limit
    causes: list[tuple[float, str]] = []
    if limit is not None and thing.created_at + limit <= now:
        causes.append((thing.created_at + limit, f"it may live {limit:,.0f} s, which are over"))
    if state is RunState.OVER and own_limit is None:
        causes.append((first_seen.get(thing.thing_id, now), "its DAG run is over"))
    if state is RunState.UNKNOWN and not (causes and deployment):
        # another Airflow that has no name either may be using it at this moment
        unsure = (
            "set [smd] deployment, so that what is ours says so" if causes else "its time to live decides"
        )
        reason = f"Airflow knows no such run; {unsure}"
        return Decision(thing=thing, action=Action.REPORT, reason=reason)
    if not causes:
        alive = "its DAG run is not over" if state is RunState.ALIVE else "it may outlive its DAG run"
        return Decision(thing=thing, action=Action.KEEP, reason=alive)
    since = min(moment for moment, _ in causes)
    reason = " and ".join(cause for _, cause in causes)
    left_seconds = since + policy.grace_seconds - now
    if left_seconds > 0:
        reason += f"; {left_seconds:,.0f} s of grace are left"
    action = Action.WAIT if left_seconds > 0 else Action.REMOVE
    return Decision(thing=thing, action=action, reason=reason, orphan_since=since)


def report(decisions: Sequence[Decision], *, removed: Mapping[str, str], dry_run: bool) -> dict[str, Any]:
    """Return what a sweep found and did, as JSON.

    Args:
        decisions: of all things that were found.
        removed: what AWS said to the removal of a thing, by its id.
        dry_run: nothing was to be removed.
    """
    unneeded = [decision for decision in decisions if decision.action is not Action.KEEP]
    cost = run_cost(decision.thing.per_day for decision in unneeded)
    return {
        "dry_run": dry_run,
        "found": len(decisions),
        "unneeded": len(unneeded),
        "usd_per_day": round(cost.known_usd, 2),
        "no_price_for": list(cost.unknown),
        "removed": sorted(removed),
        "things": [
            {
                "kind": str(decision.thing.kind),
                "id": decision.thing.thing_id,
                "action": str(decision.action),
                "reason": decision.reason,
                "usd_per_day": decision.thing.per_day.usd,
                "basis": decision.thing.per_day.basis,
                "created_at": decision.thing.created_at,
                "orphan_since": decision.orphan_since,
                "answer": removed.get(decision.thing.thing_id),
                "tags": dict(decision.thing.tags),
            }
            for decision in decisions
        ],
    }
