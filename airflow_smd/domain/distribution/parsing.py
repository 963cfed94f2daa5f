"""Read what people have: estimator arguments, a notebook's dictionary, a CreateTrainingJob request."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.job import ESTIMATORS, Form, Job, Workload, whole_number
from airflow_smd.errors import Problem

_DEPTH = 40
_TOP = ("estimator", "region", "kwargs", "fit", "workload")
_REQUEST_ONLY = ("AlgorithmSpecification", "ResourceConfig", "TrainingJobName", "HyperParameters")
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
            "argument-type", field, _short(value), f"This must be {wanted}.", f"Write {field} as {wanted}."
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
            _short(value),
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
                    _short(inner),
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
                    _short(inner),
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


def parse(mapping: Mapping[str, Any]) -> Job:
    """Return the job that `mapping` describes, in any of the forms that people have."""
    parser = Parser()
    data = parser.plain(mapping, "")
    if not isinstance(data, Mapping):
        parser.wrong_type("job", data, "a mapping")
        data = {}
    reader = _reader(data)
    job = reader(parser, data)
    return replace(job, problems=tuple(parser.problems))


def _reader(data: Mapping[str, Any]) -> Callable[[Parser, Mapping[str, Any]], Job]:
    if any(key in data for key in _REQUEST_ONLY):
        from airflow_smd.domain.distribution.requests import read_request

        return read_request
    if "kwargs" in data:
        return _estimator
    if data and all(key in facts.DISTRIBUTION_KEYS for key in data):
        return _bare
    if any(key in facts.arguments() or key in _TOP for key in data):
        return _flat
    looks_alike = any(facts.suggestion(key, tuple(facts.DISTRIBUTION_KEYS)) for key in data)
    return _bare if looks_alike else _flat


def _estimator(parser: Parser, data: Mapping[str, Any]) -> Job:
    for key in data:
        if key not in _TOP:
            parser.complain(
                "unknown-key",
                key,
                _short(data[key]),
                f"Nothing reads this; allowed beside kwargs are {', '.join(_TOP)}.",
                _meant(key, _TOP) or "Remove it, or move it into kwargs.",
            )
    kwargs = data["kwargs"]
    if not isinstance(kwargs, Mapping):
        parser.wrong_type("kwargs", kwargs, "a mapping")
        kwargs = {}
    return _job(parser, data, kwargs, Form.ESTIMATOR, "kwargs.")


def _flat(parser: Parser, data: Mapping[str, Any]) -> Job:
    kwargs = {key: value for key, value in data.items() if key not in _TOP}
    return _job(parser, data, kwargs, Form.ESTIMATOR, "")


def _bare(parser: Parser, data: Mapping[str, Any]) -> Job:
    return _job(parser, {}, {"distribution": data}, Form.DISTRIBUTION, "")


def _job(parser: Parser, data: Mapping[str, Any], kwargs: Mapping[str, Any], form: Form, prefix: str) -> Job:
    estimator = data.get("estimator") or _guess(kwargs)
    if estimator not in ESTIMATORS:
        parser.complain(
            "unknown-estimator",
            "estimator",
            _short(estimator),
            f"Allowed are {', '.join(ESTIMATORS)}.",
            (isinstance(estimator, str) and _meant(estimator, ESTIMATORS)) or "Name one of them.",
        )
        estimator = _guess(kwargs)
    region = data.get("region")
    if region is not None and not isinstance(region, str):
        parser.wrong_type("region", region, "a string")
        region = ""
    return Job(
        form=form,
        estimator=estimator,
        region=region or "",
        arguments=read_arguments(parser, kwargs, estimator, prefix),
        inputs=data.get("fit"),
        workload=_workload(parser, data.get("workload")),
    )


def _guess(kwargs: Mapping[str, Any]) -> str:
    distribution = kwargs.get("distribution")
    keys = distribution if isinstance(distribution, Mapping) else {}
    if "transformers_version" in kwargs:
        return "HuggingFace"
    if "model_dir" in kwargs or {"multi_worker_mirrored_strategy", "parameter_server"} & set(keys):
        return "TensorFlow"
    return "PyTorch"


def read_arguments(
    parser: Parser, kwargs: Mapping[str, Any], estimator: str, prefix: str = ""
) -> dict[str, Any]:
    """Return the typed arguments of an estimator; each unknown or mistyped one leaves a problem."""
    known = facts.arguments()
    clean: dict[str, Any] = {}
    for name, value in kwargs.items():
        fact = known.get(name)
        renamed = known.get(fact.renamed_to) if fact else None
        if fact and renamed:
            if renamed.name in kwargs:
                parser.complain(
                    "renamed-argument",
                    f"{prefix}{name}",
                    _short(value),
                    f"This is the old name of {renamed.name}, which is given too.",
                    f"Keep {renamed.name} only.",
                )
                continue
            fact = renamed
        if fact is None or estimator not in fact.estimators:
            _unknown(parser, f"{prefix}{name}", name, value, estimator)
            continue
        typed = parser.typed(fact.kind, value, f"{prefix}{name}" if prefix and not fact.kind else fact.name)
        if fact.name == "instance_groups" and typed is not None:
            typed = _groups(parser, typed)
        if typed is not None:
            clean[fact.name] = typed
    return clean


def _unknown(parser: Parser, field: str, name: str, value: Any, estimator: str) -> None:
    allowed = tuple(
        fact.name
        for fact in facts.arguments().values()
        if estimator in fact.estimators and not fact.renamed_to
    )
    if estimator == "Estimator" and name in ("framework_version", "py_version"):
        remedy = "Use the PyTorch or TensorFlow estimator, or give image_uri alone."
    else:
        remedy = _meant(name, allowed) or "Remove it, or set it in the request's overrides."
    parser.complain(
        "unknown-argument", field, _short(value), f"The {estimator} estimator has no such argument.", remedy
    )


def _groups(parser: Parser, groups: list[Any]) -> list[dict[str, Any]] | None:
    wanted = {"instance_group_name": str, "instance_type": str, "instance_count": int}
    clean = []
    for index, group in enumerate(groups):
        field = f"instance_groups[{index}]"
        if not isinstance(group, Mapping) or group.keys() != wanted.keys():
            parser.wrong_type(field, _short(group), f"a mapping of {', '.join(wanted)}")
            return None
        typed = {
            key: parser.typed("int" if kind is int else "str", group[key], f"{field}.{key}")
            for key, kind in wanted.items()
        }
        if None in typed.values():
            if None in group.values():
                parser.wrong_type(
                    field, _short(group), f"a mapping of {', '.join(wanted)}, none of them null"
                )
            return None
        clean.append(typed)
    return clean


def _workload(parser: Parser, value: Any) -> Workload:
    if value is None:
        return Workload()
    if not isinstance(value, Mapping):
        parser.wrong_type("workload", value, "a mapping")
        return Workload()
    names = tuple(found.name for found in fields(Workload))
    clean: dict[str, Any] = {}
    for key, number in value.items():
        if key not in names:
            parser.complain(
                "unknown-key",
                f"workload.{key}",
                _short(number),
                f"Allowed are {', '.join(names)}.",
                _meant(key, names) or "Remove it.",
            )
        elif isinstance(number, bool) or not isinstance(number, (int, float)) or number < 0:
            parser.wrong_type(f"workload.{key}", number, "a number not below 0")
        else:
            clean[key] = number
    return Workload(**clean)


def _group_names(value: Any) -> Any:
    """Return names where the SDK's InstanceGroup objects were written out as mappings."""
    if isinstance(value, list):
        return [item.get("instance_group_name") if isinstance(item, Mapping) else item for item in value]
    return value


def _meant(word: str, known: tuple[str, ...]) -> str:
    found = facts.suggestion(word, known)
    return f"Did you mean {found}?" if found else ""


def _short(value: Any) -> Any:
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"a number of {value.bit_length()} bits"  # repr refuses the largest
    if value is None or isinstance(value, (bool, int, float)):
        return value if not isinstance(value, float) or math.isfinite(value) else repr(value)
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
