"""The training jobs in a Python file, found by reading it: nothing of it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_smd.domain.distribution.facts import DISTRIBUTION_KEYS, arguments, suggestion
from airflow_smd.domain.distribution.job import ESTIMATORS

_ALWAYS = ("required-argument", "region-missing", "missing-argument", "missing-field")
_OF_UNKNOWN: Mapping[str, tuple[str, ...]] = {
    "distribution": (
        *("no-strategy", "enabled-missing", "smp-parameters", "smp-degree-missing", "smp1-needs-mpi"),
        *("smp-replicas-need-ddp", "smp-default-partition", "tensor-parallel-needs-ddp", "smp-ddp-settings"),
    ),
    "image_uri": (
        "smddp-version",
        "torchrun-version",
        "smp1-version",
        "framework-version",
        "torchrun-instance",
    ),
    "max_wait": ("spot-wait",),
    "max_run": ("spot-wait", "runtime-default", "runtime-below-need", "task-timeout"),
    "use_spot_instances": ("spot-wait",),
    "checkpoint_s3_uri": ("spot-without-checkpoints", "checkpoint-local-path"),
    "subnets": ("vpc-pair", "file-system-needs-vpc"),
    "security_group_ids": ("vpc-pair",),
    "compiler_config": ("xla-needs-compiler",),
    "instance_groups": ("group-name", "group-without-strategy"),
    "transformers_version": ("hugging-face-versions",),
    "pytorch_version": ("hugging-face-versions",),
}
"""Argument whose value is not known to the rules that would then only guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonJob:
    """One job of a Python file, as far as its values are literals."""

    line: int
    data: Mapping[str, Any]
    unknowable: tuple[str, ...]


def jobs_in(text: str) -> Iterator[PythonJob]:
    """Yield the estimators, operators and `distribution` dictionaries of a Python file.

    A name that is assigned once stands for its value; Jinja templates and anything computed is left out.
    """
    tree = ast.parse(text)
    reader = _Reader(_constants(tree))
    used: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (found := _call(node, reader)):
            used |= {id(inner) for inner in reader.reached(node)}
            yield found
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict) and id(node) not in used and _is_distribution(node):
            used |= {id(inner) for inner in reader.reached(node)}
            reader.lost.clear()
            data = reader.read(node, ("distribution",))
            if isinstance(data, dict) and data:
                yield PythonJob(line=node.lineno, data=data, unknowable=_unknowable(reader.lost))


def _call(node: ast.Call, reader: _Reader) -> PythonJob | None:
    keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    reader.lost.clear()
    data: dict[str, Any] = {}
    if "job" in keywords:  # an operator of this package
        job = reader.read(keywords["job"], ())
        if not isinstance(job, dict) or not job.keys() & arguments().keys():
            return None
        named = {"estimator": keywords.get("estimator"), "fit": keywords.get("inputs")}
        read = {key: reader.read(value, (key,)) for key, value in named.items() if value is not None}
        data = {"kwargs": job} | {key: value for key, value in read.items() if value is not ...}
    else:
        known = {name: reader.read(value, (name,)) for name, value in keywords.items()}
        known = {name: value for name, value in known.items() if value is not ...}
        if called in ESTIMATORS:
            data = {"estimator": called, "kwargs": known}
        elif isinstance(known.get("distribution"), dict):
            # An operator of somebody else: what it shares with the estimators is checked.
            data = {"kwargs": {name: value for name, value in known.items() if name in arguments()}}
        else:
            return None
    starred = any(keyword.arg is None for keyword in node.keywords)
    lost = set(_OF_UNKNOWN) - set(data["kwargs"]) if starred else set()
    return PythonJob(line=node.lineno, data=data, unknowable=_unknowable(reader.lost | lost))


def _unknowable(lost: set[str]) -> tuple[str, ...]:
    return (*_ALWAYS, *sorted({rule for name in lost for rule in _OF_UNKNOWN.get(name, ())}))


def _is_distribution(node: ast.Dict) -> bool:
    known = tuple(key for key in DISTRIBUTION_KEYS if key != "instance_groups")
    for key, value in zip(node.keys, node.values, strict=True):
        word = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
        if word in known or (word and _has_switch(value) and suggestion(word, known)):
            return True
    return False


def _has_switch(node: ast.expr) -> bool:
    keys = node.keys if isinstance(node, ast.Dict) else []
    return any(isinstance(key, ast.Constant) and key.value == "enabled" for key in keys)


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return what each plain name stands for, if it is assigned exactly once in the file."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                named = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                named = [name]
            case _:
                continue
        for name in named:
            found.setdefault(name, []).append(value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


class _Reader:
    """Reads literals, and names that stand for literals; `...` means that the value is not known."""

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names
        self.lost: set[str] = set()
        """Top-level arguments of which something is not known."""
        self._open: set[str] = set()

    def read(self, node: ast.expr, path: tuple[str, ...]) -> Any:
        """Return the value of an expression at a place of the job."""
        value = self._value(node, path)
        if value is ... and path:
            self.lost.add(path[0])
        return value

    def reached(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield every node of an expression, through the names that it uses."""
        todo, seen = [node], set[str]()
        while todo:
            for inner in ast.walk(todo.pop()):
                yield inner
                if isinstance(inner, ast.Name) and inner.id in self.names and inner.id not in seen:
                    seen.add(inner.id)
                    todo.append(self.names[inner.id])

    def _value(self, node: ast.expr, path: tuple[str, ...]) -> Any:
        match node:
            case ast.Constant(value=value):
                return ... if value is ... or (isinstance(value, str) and "{{" in value) else value
            case ast.Dict():
                return self._mapping(node, path)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                items = [self.read(item, path) for item in elements]
                return ... if any(item is ... for item in items) else items
            case ast.Name(id=name) if name in self.names and name not in self._open:
                self._open.add(name)  # a name that stands for itself has no value
                try:
                    return self.read(self.names[name], path)
                finally:
                    self._open.discard(name)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                numbers = (self.read(left, path), self.read(right, path))
                known = all(isinstance(number, (int, float)) for number in numbers)
                return numbers[0] * numbers[1] if known else ...
        return ...

    def _mapping(self, node: ast.Dict, path: tuple[str, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:  # {**other}
                inner = self.read(value, path)
                found |= inner if isinstance(inner, dict) else {}
                continue
            name = self.read(key, path)
            if isinstance(name, str):
                inner = self.read(value, (*path, name))
                if inner is not ...:
                    found[name] = inner
        return found
