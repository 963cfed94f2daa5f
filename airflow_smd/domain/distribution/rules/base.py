"""What a rule is, and the table that all of them enter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Job
from airflow_smd.errors import Severity

E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One breach of a rule."""

    field: str
    value: Any
    message: str
    remedy: str
    severity: Severity | None = None
    """Where it differs from the rule's."""


Check = Callable[[Job, Catalogue], Iterator[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A check with its name."""

    name: str
    severity: Severity
    source: str
    """Where the fact comes from."""
    family: str
    summary: str
    check: Check


RULES: dict[str, Rule] = {}


def rule(name: str, severity: Severity, source: str) -> Callable[[Check], Check]:
    """Enter a check into the table; its docstring is its documentation."""

    def enter(check: Check) -> Check:
        if name in RULES:
            raise ValueError(f"two rules are called {name}")
        RULES[name] = Rule(
            name=name,
            severity=severity,
            source=source,
            family=check.__module__.rpartition(".")[2],
            summary=" ".join((inspect.getdoc(check) or "").split()),
            check=check,
        )
        return check

    return enter


def finding(field: str, value: Any, message: str, remedy: str, severity: Severity | None = None) -> Finding:
    """Return a Finding; the positional form keeps the rules readable."""
    return Finding(field=field, value=value, message=message, remedy=remedy, severity=severity)
