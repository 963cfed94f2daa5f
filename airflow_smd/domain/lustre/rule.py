"""A rule of FSx as a row, and the case it judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from airflow_smd.domain.lustre.facts import Facts, Family, RegionFacts
from airflow_smd.domain.lustre.values import LustreConfig, StorageType
from airflow_smd.errors import Problem, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration with the facts that judge it."""

    config: LustreConfig
    family: Family
    facts: Facts
    region: RegionFacts | None

    @property
    def tiering(self) -> bool:
        """Return whether the storage grows by itself."""
        return self.family.storage_type == StorageType.INTELLIGENT_TIERING

    @property
    def efa(self) -> bool:
        """Return whether the sizes for EFA count: it is asked for, and this family has it."""
        return self.config.efa and bool(self.family.efa_step_gib)

    @property
    def sizes(self) -> str:
        """Return the accepted sizes for a person."""
        return self.family.sizes_in_words(self.config.per_unit_storage_throughput, efa=self.efa)

    @property
    def known_tier(self) -> bool:
        """Return whether we can judge a size: the tier is in our table, or there is none to have."""
        tier = self.config.per_unit_storage_throughput
        return tier in self.family.tiers or not self.family.tiers

    @property
    def automatic_iops(self) -> int:
        """Return the metadata IOPS that come with the size."""
        return automatic_iops(self.config.storage_capacity_gib or 0, self.facts)

    @property
    def iops_allowed(self) -> str:
        """Return the accepted metadata IOPS for a person."""
        table = self.facts.rest["metadata"]
        if self.tiering:
            return " or ".join(str(value) for value in table["tiering_iops"])
        return (
            f"{', '.join(map(str, table['iops']))} or a multiple of {table['step']} up to {table['largest']}"
        )

    def older_than(self, version: str) -> bool:
        """Return whether the Lustre version is older than `version`; one we cannot read is not."""
        try:
            return _numbers(self.config.type_version) < _numbers(version)
        except ValueError:
            return False


class Judged(Protocol):
    """What a rule looks at."""

    @property
    def config(self) -> LustreConfig:
        """Return what is asked for."""

    @property
    def family(self) -> Family:
        """Return the family of file systems that it belongs to."""


Judgeable = TypeVar("Judgeable", bound=Judged)


@dataclass(frozen=True, slots=True)
class Rule(Generic[Judgeable]):
    """One thing FSx refuses; `message` and `remedy` are filled from `values`."""

    name: str
    field: str
    broken: Callable[[Judgeable], bool]
    message: str
    remedy: str
    values: Callable[[Judgeable], dict[str, Any]] = lambda _: {}
    severity: Severity = Severity.ERROR

    def judge(self, case: Judgeable) -> Problem | None:
        """Return the problem, or None where the rule is kept."""
        if not self.broken(case):
            return None
        values = {"family": case.family.name, **self.values(case)}
        return Problem(
            rule=self.name,
            field=self.field,
            value=getattr(case.config, self.field),
            message=self.message.format_map(values),
            remedy=self.remedy.format_map(values),
            severity=self.severity,
        )


def automatic_iops(gib: int, facts: Facts) -> int:
    """Return the metadata IOPS that AUTOMATIC gives to a file system of `gib` GiB of SSD."""
    table = facts.rest["metadata"]
    for largest_gib, iops in table["automatic"]:
        if gib <= largest_gib:
            return int(iops)
    return int(max(1, gib // table["automatic_step_gib"]) * table["automatic_step_iops"])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
