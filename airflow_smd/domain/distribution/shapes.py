"""A request against the API's own model: names, types, required fields and limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from airflow_smd.domain.distribution import facts
from airflow_smd.errors import Problem, Severity

OPEN_ENUMS = frozenset({"TrainingInstanceType"})
"""Enumerations that grow often: a value newer than the installed model is a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One shape of the API's model, with everything that AWS checks."""

    name: str
    kind: str
    """structure, list, map, string, integer, long, float, double, boolean or another scalar."""
    members: Mapping[str, Shape] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    element: Shape | None = None
    """What a list or the values of a map consist of."""
    key: Shape | None = None
    minimum: float | None = None
    maximum: float | None = None
    pattern: str = ""
    choices: tuple[str, ...] = ()


_PYTHON: Mapping[str, tuple[tuple[type, ...], str]] = {
    "structure": ((dict,), "a mapping"),
    "map": ((dict,), "a mapping"),
    "list": ((list, tuple), "a list"),
    "string": ((str,), "a string"),
    "integer": ((int,), "a whole number"),
    "long": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "double": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
}


def merge(request: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return `request` with `overrides` laid over it: mappings merge, null removes, the rest replaces."""
    merged = dict(request)
    for key, value in overrides.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = deepcopy(value)
    return merged


def check(value: Any, shape: Shape, field: str = "") -> Iterator[Problem]:
    """Yield everything for which AWS or botocore would refuse `value`."""
    types, wanted = _PYTHON.get(shape.kind, ((object,), "anything"))
    if not isinstance(value, types) or (isinstance(value, bool) and shape.kind != "boolean"):
        yield _problem("request-type", field, value, f"This must be {wanted}.", f"Write {wanted}.")
        return
    yield from _CHECKS.get(shape.kind, _nothing)(value, shape, field)


def _nothing(_value: Any, _shape: Shape, _field: str) -> Iterator[Problem]:
    yield from ()


def _map(value: Mapping[str, Any], shape: Shape, field: str) -> Iterator[Problem]:
    yield from _size(len(value), shape, field, value, "entries")
    for key, inner in value.items():
        if shape.key:
            yield from check(key, shape.key, f"{field}.{key}")
        if shape.element:
            yield from check(inner, shape.element, f"{field}.{key}")


def _list(value: list[Any], shape: Shape, field: str) -> Iterator[Problem]:
    yield from _size(len(value), shape, field, value, "items")
    for index, inner in enumerate(value):
        if shape.element:
            yield from check(inner, shape.element, f"{field}[{index}]")


def _number(value: float, shape: Shape, field: str) -> Iterator[Problem]:
    yield from _size(value, shape, field, value, "")


def _structure(value: Mapping[str, Any], shape: Shape, field: str) -> Iterator[Problem]:
    names = tuple(shape.members)
    for key, inner in value.items():
        path = f"{field}.{key}" if field else key
        if key in shape.members:
            yield from check(inner, shape.members[key], path)
            continue
        meant = facts.suggestion(str(key), names)
        yield _problem(
            "unknown-field",
            path,
            inner,
            f"{shape.name} has no such field; it has {', '.join(sorted(names))}.",
            f"Did you mean {meant}?" if meant else "Remove it, or upgrade botocore if the field is newer.",
        )
    for name in shape.required:
        if name not in value:
            path = f"{field}.{name}" if field else name
            yield _problem(
                "missing-field",
                path,
                None,
                f"{shape.name} needs {name}.",
                f"Set {name} or the argument for it.",
            )


def _string(value: str, shape: Shape, field: str) -> Iterator[Problem]:
    yield from _size(len(value), shape, field, value, "characters")
    if shape.choices and value not in shape.choices:
        meant = facts.suggestion(value, shape.choices)
        yield _problem(
            "request-choice",
            field,
            value,
            "The installed API model does not list this value."
            if shape.name in OPEN_ENUMS
            else f"Allowed are {', '.join(shape.choices)}.",
            f"Did you mean {meant}?" if meant else "Choose an allowed value.",
            Severity.WARNING if shape.name in OPEN_ENUMS else Severity.ERROR,
        )
    if shape.pattern and not _matches(shape.pattern, value):
        yield _problem(
            "request-pattern", field, value, f"AWS wants the form {shape.pattern}.", "Write it in that form."
        )


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.fullmatch(f"(?:{pattern})", value, re.DOTALL) is not None
    except re.error:  # a few of AWS's patterns are Java's
        return True


def _size(size: float, shape: Shape, field: str, value: Any, unit: str) -> Iterator[Problem]:
    low, high = shape.minimum, shape.maximum
    if (low is None or size >= low) and (high is None or size <= high):
        return
    bounds = " and ".join(
        part
        for part in (
            f"at least {low:g}" if low is not None else "",
            f"at most {high:g}" if high is not None else "",
        )
        if part
    )
    yield _problem(
        "request-limit",
        field,
        value
        if not isinstance(value, str) or len(value) < 200
        else f"{value[:60]}... ({len(value)} characters)",
        f"This is {size:g}{' ' if unit else ''}{unit}; AWS allows {bounds}.",
        "Stay within the limit.",
    )


def _problem(
    rule: str, field: str, value: Any, message: str, remedy: str, severity: Severity = Severity.ERROR
) -> Problem:
    if not isinstance(value, (str, int, float, bool, type(None))):
        value = repr(value)[:200]
    return Problem(rule=rule, field=field, value=value, message=message, remedy=remedy, severity=severity)


_CHECKS: Mapping[str, Callable[[Any, Shape, str], Iterator[Problem]]] = {
    "structure": _structure,
    "map": _map,
    "list": _list,
    "string": _string,
    "integer": _number,
    "long": _number,
    "float": _number,
    "double": _number,
}
