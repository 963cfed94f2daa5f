"""A line of a training log <-> a point, points -> progress, and fewer points for a plot."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_smd.errors import Problem, Severity

REPORTED = ("epoch", "step", "loss", "samples_per_second", "accuracy", "validation_loss", "learning_rate")
"""What `container/report.py` lines usually hold and CloudWatch should plot."""

METRIC_DEFINITIONS: list[dict[str, str]] = [
    {"Name": name, "Regex": rf"smd: (?:.* )?{name}=([-+0-9.eE]+)"} for name in REPORTED
]
"""`AlgorithmSpecification.MetricDefinitions` for the lines of `container/report.py`."""

MOST_DEFINITIONS, LONGEST_NAME, LONGEST_REGEX = 40, 255, 500
"""Limits of MetricDefinitions (botocore 1.44: MetricDefinitionList, MetricName, MetricRegex)."""

_NUMBER = r"[-+]?(?:nan|inf|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_PAIR = re.compile(rf"([a-z][a-z0-9_]*)=({_NUMBER})(?=\s|$)")
_LINE = re.compile(r"(?<!\w)smd: (.*)")
_MPI_PREFIX = re.compile(r"\[\d+,(?:mpirank:)?(\d+)(?:,([\w.-]+))?\]<std(?:out|err)>:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The numbers of one line, and who wrote it."""

    values: Mapping[str, float]
    rank: int | None = None
    """From the prefix that mpirun puts before a line; None without one."""
    host: str | None = None
    at_seconds: float | None = None
    """When, by a clock of one's own choice: the log's, or the script's own `seconds`."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One metric and the expression whose first group is its number."""

    name: str
    expression: re.Pattern[str]


def check_definitions(definitions: Sequence[Mapping[str, Any]], field: str) -> list[Problem]:
    """Return what SageMaker, or we, would not accept in MetricDefinitions."""
    problems = []
    if len(definitions) > MOST_DEFINITIONS:
        problems.append(
            Problem(
                rule="metric-definition-count",
                field=field,
                value=len(definitions),
                message=f"SageMaker takes at most {MOST_DEFINITIONS} metric definitions.",
                remedy="Leave some out.",
            )
        )
    for index, definition in enumerate(definitions):
        where = f"{field}[{index}]"
        problems += _check_text(definition, "Name", LONGEST_NAME, where)
        problems += _check_text(definition, "Regex", LONGEST_REGEX, where) or _check_regex(definition, where)
    return problems


def _check_text(definition: Mapping[str, Any], key: str, longest: int, where: str) -> list[Problem]:
    text = definition.get(key)
    if isinstance(text, str) and 1 <= len(text) <= longest:
        return []
    return [
        Problem(
            rule="metric-definition-text",
            field=f"{where}.{key}",
            value=text,
            message=f"A metric definition needs a {key} of 1 to {longest} characters.",
            remedy=f"Write {{'Name': 'loss', 'Regex': 'loss=([0-9.]+)'}} with your own {key}.",
        )
    ]


def _check_regex(definition: Mapping[str, Any], where: str) -> list[Problem]:
    regex = definition["Regex"]
    try:
        if re.compile(regex).groups >= 1:
            return []
        message, severity = "The expression has no group, so it yields no number.", Severity.ERROR
    except re.error as error:
        # SageMaker's engine is not Python's, so what we cannot read may still be right there.
        message, severity = f"Python cannot read the expression ({error}).", Severity.WARNING
    return [
        Problem(
            rule="metric-definition-regex",
            field=f"{where}.Regex",
            value=regex,
            message=message,
            remedy="Put the number in parentheses: loss=([0-9.]+)",
            severity=severity,
        )
    ]


def patterns(definitions: Iterable[Mapping[str, str]]) -> tuple[Pattern, ...]:
    """Return MetricDefinitions ready for `parse`, without those that Python cannot read."""
    found = []
    for definition in definitions:
        try:
            expression = re.compile(definition["Regex"])
        except re.error:
            continue
        if expression.groups:
            found.append(Pattern(definition["Name"], expression))
    return tuple(found)


def parse(line: str, *, at_seconds: float | None = None, others: Sequence[Pattern] = ()) -> Point | None:
    """Return the point that `line` holds, None if it holds none.

    Whatever stands before the line is passed over: a timestamp, a logger's name, mpirun's prefix. `others`
    are the user's own metrics, for scripts that print in their own way. `at_seconds` is when the log says the
    line was written; the line's own `seconds` is preferred.
    """
    reported = _LINE.search(line)
    values = {name: float(number) for name, number in _PAIR.findall(reported[1])} if reported else {}
    for pattern in others:
        if match := pattern.expression.search(line):
            try:
                values.setdefault(pattern.name, float(match[1]))
            except (TypeError, ValueError):
                continue
    if not values:
        return None
    prefix = _MPI_PREFIX.search(line)
    return Point(
        values=values,
        rank=int(prefix[1]) if prefix else None,
        host=prefix[2] if prefix else None,
        at_seconds=values.get("seconds", at_seconds),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a training is; None is not known."""

    epoch: int | None
    step: int | None
    steps: int | None
    fraction: float | None
    """Part of the whole run that is done, 0 to 1."""
    loss: float | None
    samples_per_second: float | None
    remaining_seconds: float | None
    """Until the last step at the pace of the last points, without what comes after it."""

    def __str__(self) -> str:
        said = [
            f"epoch {self.epoch}" if self.epoch is not None else "",
            f"step {self.step}" + (f" of {self.steps}" if self.steps else "")
            if self.step is not None
            else "",
            f"{self.fraction:.0%}" if self.fraction is not None else "",
            f"loss {self.loss:.4g}" if self.loss is not None else "",
            f"{self.samples_per_second:,.0f} samples/s" if self.samples_per_second is not None else "",
            f"{self.remaining_seconds:,.0f} s left" if self.remaining_seconds is not None else "",
        ]
        return ", ".join(filter(None, said))


def progress(points: Sequence[Point], *, window: int = 20) -> Progress | None:
    """Return where a training is by its points, oldest first; None without points.

    The pace is that of the last `window` points since the run last began: after a restart from a checkpoint,
    or a step back, what was before says nothing of the pace. Where several ranks report, the lowest counts.
    """
    if not points:
        return None
    lowest = min(point.rank or 0 for point in points)
    own = [point for point in points if (point.rank or 0) == lowest]
    step, steps = _latest(own, "step"), _latest(own, "steps")
    fraction = min(1.0, max(0.0, step / steps)) if step is not None and steps else None
    epoch = _latest(own, "epoch")
    return Progress(
        epoch=None if epoch is None else int(epoch),
        step=None if step is None else int(step),
        steps=None if steps is None else int(steps),
        fraction=fraction,
        loss=_latest(own, "loss", finite=False),
        samples_per_second=_latest(own, "samples_per_second"),
        remaining_seconds=_remaining_seconds(own, window),
    )


def _latest(points: Sequence[Point], name: str, *, finite: bool = True) -> float | None:
    values = (point.values[name] for point in reversed(points) if name in point.values)
    return next((value for value in values if math.isfinite(value) or not finite), None)


def _remaining_seconds(points: Sequence[Point], window: int) -> float | None:
    recent: list[tuple[float, float]] = []
    for point in reversed(points):
        step, at = point.values.get("step"), point.at_seconds
        if step is None or at is None:
            continue
        if recent and (step > recent[-1][0] or at > recent[-1][1]):
            break
        recent.append((step, at))
        if len(recent) == window:
            break
    steps = _latest(points, "steps")
    if steps is None or len(recent) < 2 or recent[0][0] <= recent[-1][0]:
        return None
    pace = (recent[0][1] - recent[-1][1]) / (recent[0][0] - recent[-1][0])
    return max(0.0, (steps - recent[0][0]) * pace)


def series(points: Iterable[Point], name: str, *, over: str = "step") -> list[tuple[float, float]]:
    """Return one metric as (`over`, value) pairs, for a plot; points that lack either are left out."""
    return [
        (point.values[over], point.values[name])
        for point in points
        if name in point.values and over in point.values
    ]


def thin(pairs: Sequence[tuple[float, float]], at_most: int) -> list[tuple[float, float]]:
    """Return at most `at_most` (4 or more) of the (x, y) pairs, in order, that look the same when plotted.

    The first, the last, and the lowest and highest of each stretch stay, so that no spike is lost. NaN counts
    as the highest, so that a divergence stays visible.
    """
    if at_most < 4:
        raise ValueError(f"at_most={at_most}: a thinned plot needs 4 points or more")
    if len(pairs) <= at_most:
        return list(pairs)
    stretches = (at_most - 2) // 2
    inner = range(1, len(pairs) - 1)
    kept = {0, len(pairs) - 1}

    def height(index: int) -> float:
        y = pairs[index][1]
        return math.inf if math.isnan(y) else y

    for number in range(stretches):
        stretch = inner[len(inner) * number // stretches : len(inner) * (number + 1) // stretches]
        kept |= {min(stretch, key=height), max(stretch, key=height)}
    return [pairs[index] for index in sorted(kept)]
