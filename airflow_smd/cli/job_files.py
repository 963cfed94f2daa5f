"""Jobs in files: JSON, YAML, and Python that is read but never run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from airflow_smd.cli.python_jobs import jobs_in
from airflow_smd.domain.distribution.job import Job
from airflow_smd.errors import InvalidInput, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One job of a file."""

    where: str
    job: Job
    complete: bool
    """False for Python, where an argument may be there without its value being known."""
    unknowable: tuple[str, ...] = ()
    """Rules that would only guess, since the value is in a variable."""


def read_jobs(path: Path) -> list[Found]:
    """Return every job of a .json, .yaml or .py file; InvalidInput says why a file cannot be read."""
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".py":
            return [
                Found(
                    where=f"{path}:{found.line}",
                    job=Job.parse(with_files(found.data, path.parent)),
                    complete=False,
                    unknowable=found.unknowable,
                )
                for found in jobs_in(text)
            ]
        data = yaml.safe_load(text) if path.suffix in (".yaml", ".yml") else json.loads(text)
    except (OSError, ValueError, SyntaxError, RecursionError, yaml.YAMLError) as error:
        raise _unreadable(path, " ".join(str(error).split())) from error
    return [Found(where=str(path), job=Job.parse(with_files(data, path.parent)), complete=True)]


def with_files(data: Any, folder: Path) -> Any:
    """Return `data` with the model-parallel parameters in it, where they name a JSON file of `folder`.

    SDK v2 takes such a name; the file is read only if it lies in the folder of the job's file.
    """
    if not isinstance(data, Mapping):
        return data
    path: tuple[str, ...] = ("kwargs", "distribution", "smdistributed", "modelparallel")
    path = path[path.index(next((step for step in path if step in data), "kwargs")) :]
    model: Any = data
    for step in path:
        model = model.get(step) if isinstance(model, Mapping) else None
    name = model.get("parameters") if isinstance(model, Mapping) else None
    if not isinstance(name, str) or Path(name).name != name:
        return data
    try:
        content = json.loads((folder / name).read_text("utf-8"))
    except (OSError, ValueError):
        return data  # the linter says that it is only a name
    return _replaced(data, (*path, "parameters"), content)


def _replaced(data: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    head, *rest = path
    return {**data, head: _replaced(data[head], tuple(rest), value) if rest else value}


def _unreadable(path: Path, why: str) -> InvalidInput:
    return InvalidInput(
        [
            Problem(
                rule="unreadable-file",
                field=str(path),
                value=None,
                message=why,
                remedy="Give a .json, .yaml or .py file that can be read.",
            )
        ]
    )
