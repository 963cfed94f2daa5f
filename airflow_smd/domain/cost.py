"""What a run costs on AWS: price tables, an estimate before it, the bill after it, and a budget."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow_smd.errors import Problem, Severity

if TYPE_CHECKING:
    from airflow_smd.domain.lustre.values import LustreConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One price and where it is from, since AWS changes them and tables age."""

    usd: float
    """An hour of an instance, or a month of one GB of a file system."""
    source: str
    date: str

    def __str__(self) -> str:
        return f"${self.usd:.4g} ({self.source}, {self.date})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The price tables. A price that is in no table is None, never a guess."""

    instances: Mapping[tuple[str, str], Price]
    """By instance type and Region."""
    lustre: Mapping[tuple[str, str, int | None, str], Price]
    """By deployment type, storage type, tier and Region."""
    hours_per_month: float

    def instance(self, instance_type: str | None, region: str) -> Price | None:
        """Return the price of an hour of one instance for training or processing."""
        return self.instances.get((instance_type or "", region))

    def file_system(self, config: LustreConfig, region: str) -> Price | None:
        """Return the price of one GB for a month of a file system like `config`."""
        tier = config.per_unit_storage_throughput
        return self.lustre.get((config.deployment_type, config.storage_type, tier, region))

    def file_system_usd_per_hour(self, config: LustreConfig, region: str) -> float | None:
        """Return what `config` costs an hour; FSx bills by the second.

        None where the price of the storage is unknown, or where metadata IOPS or a throughput are bought on
        top, for which we have no price.
        """
        price = self.file_system(config, region)
        if price is None or config.storage_capacity_gib is None or config.metadata_iops is not None:
            return None
        return config.storage_capacity_gib * price.usd / self.hours_per_month


def load_prices(overrides: Mapping[str, Any] | None = None) -> Prices:
    """Return the price tables with your own prices before ours.

    Args:
        overrides: shaped like tables/prices.json: `{"instances": [{"type": ..., "region": ...,
            "usd_per_hour": ...}], "lustre": [{"family": ..., "tier": ..., "region": ...,
            "usd_per_gb_month": ...}], "hours_per_month": 730}`; all parts optional.
    """
    return _read(json.dumps(overrides or {}))


@cache
def _read(overrides: str) -> Prices:
    tables = json.loads((files("airflow_smd.domain") / "tables" / "prices.json").read_text("utf-8"))
    mine = json.loads(overrides)
    return Prices(
        instances=MappingProxyType(
            {
                (row["type"], row["region"]): _price(row, "usd_per_hour")
                for row in [*tables["instances"], *mine.get("instances", [])]
            }
        ),
        lustre=MappingProxyType(
            {
                (row["family"], row.get("storage_type", "SSD"), row.get("tier"), row["region"]): _price(
                    row, "usd_per_gb_month"
                )
                for row in [*tables["lustre"], *mine.get("lustre", [])]
            }
        ),
        hours_per_month=mine.get("hours_per_month", tables["hours_per_month"]),
    )


def _price(row: Mapping[str, Any], key: str) -> Price:
    return Price(usd=row[key], source=row.get("source", "your own price"), date=row.get("date", "now"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One thing that is paid for."""

    what: str
    usd: float | None
    """None: we do not know its price."""
    basis: str
    """How the figure came about, or why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run costs, before or after it, line by line."""

    lines: tuple[CostLine, ...]

    @property
    def known_usd(self) -> float:
        """Return the sum of the lines whose price we know; the run costs at least this."""
        return sum(line.usd for line in self.lines if line.usd is not None)

    @property
    def total_usd(self) -> float | None:
        """Return the sum, or None where a line has no price."""
        return None if self.unknown else self.known_usd

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the lines that have no price."""
        return tuple(line.what for line in self.lines if line.usd is None)

    def __str__(self) -> str:
        """Return the sum in words: `$12.34`, or `at least $12.34 (no price for file system)`."""
        if not self.unknown:
            return f"${self.known_usd:,.2f}"
        return f"at least ${self.known_usd:,.2f} (no price for {', '.join(self.unknown)})"


def instances_line(
    what: str,
    *,
    instance_type: str,
    count: int,
    seconds: float,
    region: str,
    prices: Prices | None = None,
    usd_per_hour: float | None = None,
) -> CostLine:
    """Return what `count` instances cost for `seconds` each: planned ones, or those that were billed.

    Args:
        what: `training`, `preprocessing` or another word for the reader.
        instance_type: as SageMaker writes it.
        count: how many of them.
        seconds: billable seconds of each; SageMaker reports them after a training job, Spot savings included.
        region: AWS Region.
        prices: default: our tables.
        usd_per_hour: your own price of one instance.
    """
    price = (prices or load_prices()).instance(instance_type, region)
    if usd_per_hour is not None:
        price = Price(usd=usd_per_hour, source="your own price", date="now")
    basis = f"{count} x {instance_type} x {seconds:,.0f} s"
    if price is None:
        return CostLine(what=what, usd=None, basis=f"{basis}; no price for it in {region}")
    return CostLine(
        what=what, usd=count * seconds / 3600 * price.usd, basis=f"{basis} at {price} for an hour"
    )


def file_system_line(
    what: str, config: LustreConfig, *, seconds: float, region: str, prices: Prices | None = None
) -> CostLine:
    """Return what a file system costs from its creation to its deletion."""
    prices = prices or load_prices()
    per_hour, price = prices.file_system_usd_per_hour(config, region), prices.file_system(config, region)
    tier = f"-{config.per_unit_storage_throughput}" if config.per_unit_storage_throughput else ""
    basis = f"{config.deployment_type}{tier}, {config.storage_capacity_gib or 0:,} GiB x {seconds:,.0f} s"
    if per_hour is None:
        return CostLine(what=what, usd=None, basis=f"{basis}; no price for it in {region}")
    return CostLine(what=what, usd=per_hour * seconds / 3600, basis=f"{basis} at {price} for a GB and month")


def run_cost(lines: Iterable[CostLine]) -> Cost:
    """Return the lines of one run as its cost."""
    return Cost(lines=tuple(lines))


def budget_problems(cost: Cost, budget_usd: float | None) -> tuple[Problem, ...]:
    """Return what speaks against `cost` on a budget: an error above it, a warning where we cannot tell."""
    if budget_usd is None:
        return ()
    if budget_usd <= 0:
        return (
            _budget("budget-range", budget_usd, "must be more than 0.", "Give US dollars, or leave it out."),
        )
    if cost.known_usd > budget_usd:
        most = max(cost.lines, key=lambda line: line.usd or 0)
        return (
            _budget(
                "budget-exceeded",
                budget_usd,
                f"is less than the run costs: {cost}, most of it {most.what} ({most.basis}).",
                "Raise the budget, or plan fewer nodes or epochs.",
            ),
        )
    if cost.unknown:
        return (
            _budget(
                "budget-unknown",
                budget_usd,
                f"cannot be checked in full: the run costs {cost}.",
                "Give the missing prices.",
                Severity.WARNING,
            ),
        )
    return ()


def _budget(
    rule: str, value: float, message: str, remedy: str, severity: Severity = Severity.ERROR
) -> Problem:
    return Problem(
        rule=rule, field="budget_usd", value=value, message=message, remedy=remedy, severity=severity
    )
