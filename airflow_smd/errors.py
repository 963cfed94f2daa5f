"""Every error raised on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How much a problem matters: an error stops the run, a warning is logged, a note is advice."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with an input, and what to do about it."""

    rule: str
    """Kebab-case name, stable, so that the rule can be silenced."""
    field: str
    """The offending field as the user spells it, with its path: `distribution.mpi.processes_per_host`."""
    value: Any
    message: str
    """What is wrong and what is allowed."""
    remedy: str
    """The likely fix, as an instruction."""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.field}={self.value!r}: {self.message} {self.remedy} [{self.rule}]"


class SmdError(Exception):
    """Base of every error that this package raises on purpose."""


class InvalidInput(SmdError):
    """The input has problems, all of them listed; nothing was created."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        super().__init__(
            f"{count} problem{'s' if count != 1 else ''} found before anything was created:\n"
            + "\n".join(f"  - {problem}" for problem in self.problems)
        )


def refuse(problems: Iterable[Problem]) -> None:
    """Raise InvalidInput if any problem is an error."""
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    if errors:
        raise InvalidInput(errors)
