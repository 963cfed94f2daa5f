"""What a transform may be told: the options of each kind, checked before anything runs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_smd.errors import Problem

Allowed = type | tuple[type, ...] | tuple[str, ...]

_COMMON: dict[str, Allowed] = {"on_bad": ("fail", "skip"), "max_bad": int}
_CLASSES: dict[str, Allowed] = {"class_from": ("directory", "none"), "classes": list}

OPTIONS: Mapping[str, Mapping[str, Allowed]] = {
    "tabular": {
        "label_column": (int, str, type(None)),
        "header": bool,
        "dtype": ("float32", "float64", "uint8", "int32", "int64"),
        "delimiter": str,
        "classes": list,
        **_COMMON,
    },
    "copy": {"keys": ("keep", "prefix"), **_CLASSES, **_COMMON},
    "images": {
        "size": int,
        "encode": ("jpeg", "png", "raw"),
        "quality": int,
        "enlarge": bool,
        **_CLASSES,
        **_COMMON,
    },
    "function": {"function": str, "arguments": dict, "load": bool, **_CLASSES, **_COMMON},
}
"""Kind → option → its type or its words; the container's classes take the same (a contract test compares)."""


def transform_problems(transform: Any, *, has_code: bool) -> list[Problem]:
    """Return everything that is wrong with a transform."""
    if not isinstance(transform, Mapping):
        return [_problem("transform", transform, f"a mapping with `kind` is wanted ({', '.join(OPTIONS)}).")]
    kind = transform.get("kind")
    if not isinstance(kind, str) or kind not in OPTIONS:
        return [_problem("transform.kind", kind, f"there is no such kind.{_nearest(kind, OPTIONS)}")]
    problems = []
    for name, value in transform.items():
        if name == "kind":
            continue
        if name not in OPTIONS[kind]:
            message = f"{kind} has no such option.{_nearest(name, OPTIONS[kind])}"
            problems.append(_problem(f"transform.{name}", value, message))
        elif not _fits(value, OPTIONS[kind][name]):
            wanted = f"{_words(OPTIONS[kind][name])} is wanted."
            problems.append(_problem(f"transform.{name}", value, wanted))
    return problems or _value_problems(transform, has_code=has_code)


def _value_problems(transform: Mapping[str, Any], *, has_code: bool) -> list[Problem]:
    problems = []
    for name, low, high in (("max_bad", 0, 10**9), ("size", 1, 65_535), ("quality", 1, 95)):
        if name in transform and not low <= transform[name] <= high:
            message = f"{low} to {high} is allowed."
            problems.append(_problem(f"transform.{name}", transform[name], message))
    if len(transform.get("delimiter", ",")) != 1:
        problems.append(_problem("transform.delimiter", transform["delimiter"], "one character is wanted."))
    if isinstance(transform.get("label_column"), str) and not transform.get("header"):
        message = "a column can be named only where the files have a header: set transform.header."
        problems.append(_problem("transform.label_column", transform["label_column"], message))
    if transform["kind"] == "function":
        function = transform.get("function", "")
        if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", function):
            problems.append(_problem("transform.function", function, "`module:function` is wanted."))
        if not has_code:
            problems.append(_problem("code_dir", None, "transform.kind=function needs the code's directory."))
    return problems


def _fits(value: Any, allowed: Allowed) -> bool:
    if isinstance(allowed, type):
        return isinstance(value, allowed) and not (allowed is int and isinstance(value, bool))
    if all(isinstance(item, str) for item in allowed):
        return value in allowed
    return isinstance(value, allowed) and not isinstance(value, bool)  # type: ignore[arg-type]


def _words(allowed: Allowed) -> str:
    if isinstance(allowed, type):
        return f"a value of type {allowed.__name__}"
    return "one of " + ", ".join(item if isinstance(item, str) else item.__name__ for item in allowed)


def _nearest(word: Any, known: Mapping[str, Any] | Sequence[str]) -> str:
    close = difflib.get_close_matches(str(word), list(known), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{hint} Allowed: {', '.join(sorted(known))}."


def _problem(field: str, value: Any, message: str) -> Problem:
    remedy = "Correct it; the options are described at `SageMakerPreprocessOperator`."
    return Problem(rule="transform", field=field, value=value, message=message, remedy=remedy)
