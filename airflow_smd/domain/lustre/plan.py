"""The plan: the file system that costs the run least, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from airflow_smd.domain.cost import Prices, load_prices
from airflow_smd.domain.lustre.facts import Facts, load
from airflow_smd.domain.lustre.forecast import Forecast, forecast, node_usd_per_hour
from airflow_smd.domain.lustre.inputs import other_input
from airflow_smd.domain.lustre.ladder import Rung, capacity_floor_gib, choose, rungs
from airflow_smd.domain.lustre.need import Need, need_problems
from airflow_smd.domain.lustre.rate import target_mbps
from airflow_smd.domain.lustre.reasons import lost_because, why
from airflow_smd.domain.lustre.values import InputMode
from airflow_smd.errors import refuse

_Kind = TypeVar("_Kind", bound=Forecast)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative(Forecast):
    """A file system that lost."""

    lost_because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LustrePlan(Forecast):
    """The file system that costs the run least, and why."""

    required_mbps: float
    """The plain rule: all bytes in one epoch's time."""
    target_mbps: float
    """The rate beyond which more speed costs more than the waiting it saves."""
    why: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    input_mode: InputMode = InputMode.FSX_LUSTRE


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherInput:
    """A file system is not worth it; this input mode is."""

    input_mode: InputMode
    required_mbps: float
    why: tuple[str, ...]
    file_system: LustrePlan | None
    """What a file system would have been; None where none can be had."""


def plan(need: Need, *, facts: Facts | None = None, prices: Prices | None = None) -> LustrePlan | OtherInput:
    """Return the file system that costs the whole run least, or the input mode that needs none.

    Raises InvalidInput with every problem of `need`.
    """
    facts, prices = facts or load(), prices or load_prices()
    refuse(need_problems(need, facts))
    other = other_input(need, facts)
    options = rungs(need, facts, prices)
    chosen = _plan(need, options, facts, prices) if options else None
    if other is None:
        # need_problems has refused pins that leave nothing to choose from.
        assert chosen is not None  # noqa: S101
        return chosen
    mode, reasons = other
    return OtherInput(input_mode=mode, required_mbps=need.required_mbps, why=reasons, file_system=chosen)


def curve(
    need: Need, chosen: Forecast, *, facts: Facts | None = None, prices: Prices | None = None
) -> tuple[Forecast, ...]:
    """Return what to expect of every size of the chosen kind, up to about twice the chosen one."""
    facts, prices = facts or load(), prices or load_prices()
    kind = (chosen.deployment_type, chosen.per_unit_storage_throughput)
    largest = max(2 * chosen.storage_capacity_gib, 7200)
    sizes = sorted(
        (rung for rung in rungs(need, facts, prices) if rung.kind == kind and rung.gib <= largest),
        key=lambda rung: rung.gib,
    )
    expected = (forecast(need, rung.config, facts, prices) for rung in sizes)
    return tuple(one for one in expected if one is not None)


def _plan(need: Need, options: Sequence[Rung], facts: Facts, prices: Prices) -> LustrePlan | None:
    node_usd = node_usd_per_hour(need, prices)
    target = target_mbps(need, options, node_usd, facts)
    floor = capacity_floor_gib(need, facts)
    best = choose(options, target, floor, need.nodes)
    expected = forecast(need, best.config, facts, prices) if best else None
    if best is None or expected is None:
        return None
    losers = [
        loser
        for rung in _losers(need, options, best, target, floor)
        if (loser := forecast(need, rung.config, facts, prices))
    ]
    same_kind = [rung for rung in options if rung.kind == best.kind]
    return _as(
        LustrePlan,
        expected,
        required_mbps=need.required_mbps,
        target_mbps=target,
        why=why(need, expected, target, floor, same_kind, facts, prices),
        alternatives=tuple(
            _as(Alternative, loser, lost_because=lost_because(loser, expected, target)) for loser in losers
        ),
    )


def _losers(
    need: Need, options: Sequence[Rung], best: Rung, target: float, floor_gib: float
) -> Iterator[Rung]:
    """Yield the next smaller and larger of the same kind, and the best of every other kind."""
    same = sorted((rung for rung in options if rung.kind == best.kind), key=lambda rung: rung.gib)
    at = same.index(best)
    yield from (rung for rung in same[max(0, at - 1) : at + 2] if rung is not best and rung.gib >= floor_gib)
    for kind in dict.fromkeys(rung.kind for rung in options if rung.kind != best.kind):
        of_kind = [rung for rung in options if rung.kind == kind]
        other = choose(of_kind, target, floor_gib, need.nodes)
        if other:
            yield other


def _as(kind: type[_Kind], base: Forecast, **more: Any) -> _Kind:
    return kind(**{field.name: getattr(base, field.name) for field in fields(Forecast)}, **more)
