"""Billed things in memory: they are found by their tags, end when told to, and break when a test says so."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_smd.domain.cost import CostLine
from airflow_smd.domain.identity import NAME_TAG
from airflow_smd.domain.sweep import Kind, Thing


class FakeBilledThings:
    """What one account pays for.

    Args:
        unreadable: kinds that cannot be listed.
    """

    def __init__(self, *, unreadable: frozenset[Kind] = frozenset()) -> None:
        self.unreadable = unreadable
        self.stuck: set[str] = set()
        self.running: dict[str, Thing] = {}
        self.removed: list[str] = []

    def put(
        self,
        kind: Kind,
        tags: Mapping[str, str],
        *,
        created_at: float = 0.0,
        usd_per_day: float | None = 24.0,
        thing_id: str = "",
    ) -> str:
        thing_id = thing_id or f"{kind.replace(' ', '-')}-{len(self.running) + len(self.removed) + 1}"
        per_day = CostLine(what=str(kind), usd=usd_per_day, basis="1 x this")
        self.running[thing_id] = Thing(
            kind=kind, thing_id=thing_id, tags=dict(tags), created_at=created_at, per_day=per_day
        )
        return thing_id

    def find(self, kind: Kind, *, now: float) -> list[Thing]:
        if kind in self.unreadable:
            raise PermissionError(f"not allowed to list every {kind}")
        return [thing for thing in self.running.values() if thing.kind is kind and NAME_TAG in thing.tags]

    def remove(self, thing: Thing) -> str:
        if thing.thing_id in self.stuck:
            raise PermissionError(f"not allowed to remove {thing.thing_id}")
        if self.running.pop(thing.thing_id, None) is None:
            return "gone"
        self.removed.append(thing.thing_id)
        return "DELETING" if thing.kind is Kind.FILE_SYSTEM else "stopping"


class FakeRuns:
    """A task instance that knows the states of DAG runs, as Airflow's API tells them.

    Args:
        states: DAG id and run id -> state.
    """

    dag_id, run_id, task_id, map_index, max_tries, try_number = "smd_sweep", "today", "sweep", -1, 0, 1

    def __init__(self, states: Mapping[tuple[str, str], str]) -> None:
        self.states = dict(states)
        self.asked: list[tuple[str, str]] = []

    def get_dr_count(
        self,
        dag_id: str,
        logical_dates: list[str] | None = None,
        run_ids: list[str] | None = None,
        states: list[str] | None = None,
    ) -> int:
        self.asked += [(dag_id, run_id) for run_id in run_ids or ()]
        return sum(
            dag == dag_id and (run_ids is None or run in run_ids) and (states is None or state in states)
            for (dag, run), state in self.states.items()
        )
