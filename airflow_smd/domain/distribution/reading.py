"""Turn loose data into typed settings, collecting what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.job import whole_number
from airflow_smd.errors import Problem

_DEPTH = 40
_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "a string"),
    "map": (Mapping, "a mapping"),
    "list": (list, "a list"),
    "switch": ((bool, Mapping), "true, false or a mapping"),
    "path": ((str, bool), "an S3 URI, a path or false"),
    "tags": ((list, Mapping), "a list of {Key, Value} or a mapping"),
    "any": (object, "anything"),
}


class Parser:
    """Collects problems while it turns loose data into typed arguments."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def complain(self, rule: str, field: str, value: Any, message: str, remedy: str) -> None:
        """Remember one problem."""
        self.problems.append(Problem(rule=rule, field=field, value=value, message=message, remedy=remedy))

    def wrong_type(self, field: str, value: Any, wanted: str) -> None:
        """Remember that a value has the wrong type."""
        self.complain(
            "argument-type", field, short(value), f"This must be {wanted}.", f"Write {field} as {wanted}."
        )

    def plain(self, value: Any, path: str, depth: int = 0) -> Any:
        """Return `value` as JSON data; what JSON cannot hold becomes None and a problem."""
        if hasattr(value, "distribution") and callable(value.distribution):
            value = value.distribution()
        match value:
            case None | bool() | str():
                return value
            case int() if abs(value) < 2**63:
                return value
            case float() if math.isfinite(value):
                return value
            case Mapping() if depth < _DEPTH:
                return {
                    key: self.plain(inner, f"{path}.{key}" if path else key, depth + 1)
                    for key, inner in value.items()
                    if self._key(key, path)
                }
            case list() | tuple() if depth < _DEPTH:
                return [self.plain(inner, f"{path}[{n}]", depth + 1) for n, inner in enumerate(value)]
        self.complain(
            "not-json",
            path,
            f"more than {_DEPTH} levels" if depth >= _DEPTH else short(value),  # repr recurses as well
            "JSON cannot hold this; allowed are strings, finite numbers, booleans, null, lists and mappings.",
            "Write a plain value.",
        )
        return None

    def _key(self, key: Any, path: str) -> bool:
        if isinstance(key, str):
            return True
        self.wrong_type(f"{path}.{key!r}" if path else repr(key), key, "a mapping whose keys are strings")
        return False

    def typed(self, kind: str, value: Any, field: str) -> Any:
        """Return an argument's value in its type, or None with a problem."""
        if value is None:
            return None
        match kind:
            case "int":
                number = whole_number(value)
                if number is None:
                    self.wrong_type(field, value, "a whole number")
                return number
            case "bool":
                return self._boolean(value, field)
            case "strs":
                if isinstance(value, list) and all(isinstance(item, str) for item in value):
                    return value
                self.wrong_type(field, value, "a list of strings")
                return None
            case "distribution":
                return self.distribution(value, field)
        allowed, wanted = _KINDS[kind]
        if isinstance(value, allowed):
            return value
        self.wrong_type(field, value, wanted)
        return None

    def _boolean(self, value: Any, field: str) -> bool | None:
        if isinstance(value, bool):
            return value
        if value in ("true", "True", "false", "False"):  # a template's rendered boolean
            return str(value).lower() == "true"
        self.wrong_type(field, value, "true or false")
        return None

    def distribution(self, value: Any, field: str) -> dict[str, Any] | None:
        """Return the well-typed part of a `distribution` dictionary."""
        if not isinstance(value, Mapping):
            self.wrong_type(field, value, "a mapping")
            return None
        clean: dict[str, Any] = {}
        for key, inner in value.items():
            path = f"{field}.{key}"
            if key == "instance_groups":
                names = self.typed("strs", _group_names(inner), path)
                if names is not None:
                    clean[key] = names
            elif key == "smdistributed" and isinstance(inner, Mapping):
                clean[key] = dict(self._sections(inner, path))
            elif key in facts.DISTRIBUTION_KEYS and not isinstance(inner, Mapping):
                self.complain(
                    "strategy-not-a-mapping",
                    path,
                    short(inner),
                    "A strategy's settings must be a mapping.",
                    f'Write "{key}": {{"enabled": True}}.'
                    if key != "smdistributed"
                    else 'Write "smdistributed": {"dataparallel": {"enabled": True}}.',
                )
            else:
                clean[key] = self._options(inner, path) if isinstance(inner, Mapping) else inner
        return clean

    def _sections(self, value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
        for name, inner in value.items():
            if name in facts.SMDISTRIBUTED_KEYS and not isinstance(inner, Mapping):
                self.complain(
                    "strategy-not-a-mapping",
                    f"{path}.{name}",
                    short(inner),
                    "A strategy's settings must be a mapping.",
                    f'Write "{name}": {{"enabled": True}}.',
                )
            else:
                kept = isinstance(inner, Mapping) and name in facts.SMDISTRIBUTED_KEYS
                yield name, self._options(inner, f"{path}.{name}") if kept else inner

    def _options(self, value: Mapping[str, Any], path: str) -> dict[str, Any]:
        clean = dict(value)
        options = clean.get("custom_mpi_options")
        if options is not None and not isinstance(options, str):
            self.wrong_type(f"{path}.custom_mpi_options", options, "a string")
            del clean["custom_mpi_options"]
        if clean.get("processes_per_host") is not None:
            count = whole_number(clean["processes_per_host"])
            if count is None or count < 1:
                self.wrong_type(
                    f"{path}.processes_per_host", clean["processes_per_host"], "a whole number above 0"
                )
                del clean["processes_per_host"]
        return clean


def _group_names(value: Any) -> Any:
    """Return names where the SDK's InstanceGroup objects were written out as mappings."""
    if isinstance(value, list):
        return [item.get("instance_group_name") if isinstance(item, Mapping) else item for item in value]
    return value


def short(value: Any) -> Any:
    """Return a value that a report can print."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"a number of {value.bit_length()} bits"  # repr refuses the largest
    if value is None or isinstance(value, (bool, int, float)):
        return value if not isinstance(value, float) or math.isfinite(value) else repr(value)
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
