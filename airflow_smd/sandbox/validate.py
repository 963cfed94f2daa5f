"""What a request breaks of its service's model, in AWS's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

SERVICES = ("sagemaker", "fsx", "codebuild")
"""The services whose requests are checked; moto checks its own where it does."""
JAVA_CLASSES = {
    r"\uD800\uDC00-\uDBFF\uDFFF": r"\U00010000-\U0010FFFF",
    r"\p{L}": r"\w",
    r"\p{N}": r"\d",
    r"\p{Z}": r"\s",
    r"\p{Alnum}": "a-zA-Z0-9",
    r"\p{ASCII}": r"\x00-\x7F",
    r"\p{Graph}": r"\x21-\x7E",
}
"""Java's character classes in the models -> Python's nearest; `\\w` lets some more pass than `\\p{L}`."""
JSON_TYPES = ((bool, "BOOLEAN_VALUE"), (str, "STRING_VALUE"), ((int, float), "NUMBER_VALUE"))
WANTED_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "a String"),
    "integer": ((int,), "an Integer"),
    "long": ((int,), "a Long"),
    "float": ((int, float), "a Float"),
    "double": ((int, float), "a Double"),
    "boolean": ((bool,), "a Boolean"),
}


class WrongType(Exception):
    """A value that the service cannot even read: AWS answers SerializationException at once."""


@cache
def input_shape(service: str, operation: str) -> Any:
    """Return botocore's shape of an operation's request, None if there is no such operation."""
    import botocore.session

    model = _model(service, botocore.session.get_session())
    return model.operation_model(operation).input_shape if operation in model.operation_names else None


@cache
def _model(service: str, session: Any) -> Any:
    return session.get_service_model(service)


def complaint(service: str, operation: str, request: Mapping[str, Any]) -> str | None:
    """Return AWS's message on everything that is wrong with a request, None if it may pass.

    WrongType is raised where a value is not of the JSON type that the model wants.
    """
    shape = input_shape(service, operation)
    found = list(_violations(shape, request, "")) if shape is not None else []
    if not found:
        return None
    plural = "s" if len(found) > 1 else ""
    return f"{len(found)} validation error{plural} detected: " + "; ".join(found)


def _violations(shape: Any, value: Any, path: str) -> Iterator[str]:
    match shape.type_name:
        case "structure":
            yield from _structure(shape, value, path)
        case "list":
            _expect(isinstance(value, list), "Expected list or null")
            yield from _bounds(shape, value, len(value), "length", path)
            for number, item in enumerate(value, 1):
                yield from _violations(shape.member, item, f"{path}.{number}.member")
        case "map":
            _expect(isinstance(value, Mapping), "Expected map or null")
            yield from _bounds(shape, value, len(value), "length", path)
            yield from _map_entries(shape, value, path)
        case kind if kind in WANTED_TYPES:
            yield from _scalar(shape, value, path)


def _structure(shape: Any, value: Any, path: str) -> Iterator[str]:
    _expect(isinstance(value, Mapping), "Start of structure or map expected")
    for name, member in shape.members.items():
        where = f"{path}.{_lower(name)}" if path else _lower(name)
        if value.get(name) is not None:
            yield from _violations(member, value[name], where)
        elif name in shape.required_members:
            yield f"Value null at '{where}' failed to satisfy constraint: Member must not be null"
    for name in value:
        if name not in shape.members:
            where = f"{path}.{_lower(name)}" if path else _lower(name)
            yield _failed(shape, value[name], where, f"Member must be one of {_brackets(shape.members)}")


def _map_entries(shape: Any, value: Mapping[str, Any], path: str) -> Iterator[str]:
    """Complain once about all keys and once about all plain values, as AWS does."""
    for what, member, items in (
        ("keys", shape.key, list(value)),
        ("value", shape.value, list(value.values())),
    ):
        if member.type_name != "string":
            for name, item in zip(value, items, strict=True):
                yield from _violations(member, item, f"{path}.{name}.member")
        elif any(True for item in items for _ in _scalar(member, item, path)):
            yield (
                f"Value at '{path}' failed to satisfy constraint: "
                f"Map {what} must satisfy constraint: {_brackets(_constraints(member))}"
            )


def _scalar(shape: Any, value: Any, path: str) -> Iterator[str]:
    wanted, name = WANTED_TYPES[shape.type_name]
    sound = isinstance(value, wanted) and (wanted == (bool,) or not isinstance(value, bool))
    _expect(sound, f"{_json_type(value)} can not be converted to {name}")
    limits = shape.metadata
    if enum := limits.get("enum"):
        if value not in enum:
            yield _failed(shape, value, path, f"Member must satisfy enum value set: {_brackets(enum)}")
        return
    if isinstance(value, str):
        yield from _bounds(shape, value, len(value), "length", path)
        if (pattern := limits.get("pattern")) and not _fits(pattern, value):
            yield _failed(shape, value, path, f"Member must satisfy regular expression pattern: {pattern}")
    else:
        yield from _bounds(shape, value, value, "value", path)


def _bounds(shape: Any, value: Any, measured: float, what: str, path: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if most is not None and measured > most:
        yield _failed(shape, value, path, f"Member must have {what} less than or equal to {most}")
    if least is not None and measured < least:
        yield _failed(shape, value, path, f"Member must have {what} greater than or equal to {least}")


def _constraints(shape: Any) -> Iterator[str]:
    """Name all limits of a map's key or value."""
    limits = shape.metadata
    if "max" in limits:
        yield f"Member must have length less than or equal to {limits['max']}"
    if "min" in limits:
        yield f"Member must have length greater than or equal to {limits['min']}"
    if "pattern" in limits:
        yield f"Member must satisfy regular expression pattern: {limits['pattern']}"
    if "enum" in limits:
        yield f"Member must satisfy enum value set: {_brackets(limits['enum'])}"


def _failed(shape: Any, value: Any, path: str, constraint: str) -> str:
    hidden = shape.metadata.get("sensitive")
    return f"Value{'' if hidden else _quoted(value)} at '{path}' failed to satisfy constraint: {constraint}"


def _quoted(value: Any) -> str:
    text = _brackets(value) if isinstance(value, list) else str(value)
    return f" '{text}'"


def _brackets(values: Any) -> str:
    return f"[{', '.join(map(str, values))}]"


def _lower(name: str) -> str:
    return name[:1].lower() + name[1:]


def _expect(sound: bool, message: str) -> None:
    if not sound:
        raise WrongType(message)


def _json_type(value: Any) -> str:
    for types, name in JSON_TYPES:
        if isinstance(value, types):
            return name
    return "Start of structure or map" if isinstance(value, Mapping) else "Start of list"


@cache
def _compiled(pattern: str) -> re.Pattern[str] | None:
    for java, python in JAVA_CLASSES.items():
        pattern = pattern.replace(java, python)
    try:
        return re.compile(pattern)
    except re.error:
        return None


def _fits(pattern: str, value: str) -> bool:
    """Tell whether the whole value matches; a pattern that Python cannot read refuses nothing."""
    compiled = _compiled(pattern)
    return compiled is None or compiled.fullmatch(value) is not None
