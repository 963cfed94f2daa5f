"""Read what people have: estimator arguments, a notebook's dictionary, a CreateTrainingJob request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.job import ESTIMATORS, Form, Job, Workload
from airflow_smd.domain.distribution.reading import Parser, short

_TOP = ("estimator", "region", "kwargs", "fit", "workload")
_REQUEST_ONLY = ("AlgorithmSpecification", "ResourceConfig", "TrainingJobName", "HyperParameters")


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
                short(data[key]),
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
            short(estimator),
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
                    short(value),
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
        "unknown-argument", field, short(value), f"The {estimator} estimator has no such argument.", remedy
    )


def _groups(parser: Parser, groups: list[Any]) -> list[dict[str, Any]] | None:
    wanted = {"instance_group_name": str, "instance_type": str, "instance_count": int}
    clean = []
    for index, group in enumerate(groups):
        field = f"instance_groups[{index}]"
        if not isinstance(group, Mapping) or group.keys() != wanted.keys():
            parser.wrong_type(field, short(group), f"a mapping of {', '.join(wanted)}")
            return None
        typed = {
            key: parser.typed("int" if kind is int else "str", group[key], f"{field}.{key}")
            for key, kind in wanted.items()
        }
        if None in typed.values():
            if None in group.values():
                parser.wrong_type(field, short(group), f"a mapping of {', '.join(wanted)}, none of them null")
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
                short(number),
                f"Allowed are {', '.join(names)}.",
                _meant(key, names) or "Remove it.",
            )
        elif isinstance(number, bool) or not isinstance(number, (int, float)) or number < 0:
            parser.wrong_type(f"workload.{key}", number, "a number not below 0")
        else:
            clean[key] = number
    return Workload(**clean)


def _meant(word: str, known: tuple[str, ...]) -> str:
    found = facts.suggestion(word, known)
    return f"Did you mean {found}?" if found else ""
