"""airflow-smd lint: every problem of a job, before it costs anything."""

from __future__ import annotations

import argparse
import dataclasses
import json
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from airflow_smd.aws.containers import installed_catalogue
from airflow_smd.cli.job_files import read_jobs
from airflow_smd.domain.distribution import lint
from airflow_smd.errors import InvalidInput, Problem, Severity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take files, and how to print."""
    parser.add_argument("files", nargs="+", type=Path, metavar="job.yaml|job.json|dag.py")
    parser.add_argument("--json", action="store_true", help="print the problems as JSON")
    parser.add_argument("--ignore", action="append", default=[], metavar="RULE", help="silence a rule")
    parser.add_argument("--notes", action="store_true", help="show advice, too")


def run(arguments: argparse.Namespace) -> int:
    """Print the problems; 1 if one of them is an error."""
    found: list[tuple[str, Problem]] = []
    count = 0
    for path in arguments.files:
        try:
            jobs = read_jobs(path)
        except InvalidInput as refused:
            found += [(str(path), problem) for problem in refused.problems]
            continue
        count += len(jobs)
        for one in jobs:
            silenced = (*arguments.ignore, *one.unknowable)
            found += [(one.where, problem) for problem in lint(one.job, installed_catalogue(), silenced)]
    if arguments.json:
        shown = [one for _where, one in found if arguments.notes or one.severity is not Severity.NOTE]
        print(report(shown))
    else:
        text = table(found, count, notes=arguments.notes)
        print(text.encode("utf-8", "backslashreplace").decode())  # JSON may hold half a surrogate pair
    return int(any(problem.severity is Severity.ERROR for _where, problem in found))


def report(problems: Iterable[Problem]) -> str:
    """Return problems as the JSON that other programs read."""
    rows = [dataclasses.asdict(problem) for problem in problems]
    order = ("severity", "rule", "field", "value", "message", "remedy")
    listed = [{key: row[key] for key in order} for row in rows]
    return json.dumps({"problems": listed}, indent=2, default=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def table(found: list[tuple[str, Problem]], jobs: int, *, notes: bool = False) -> str:
    """Return problems for a person, notes only on request."""
    lines: list[str] = []
    shown = [(where, one) for where, one in found if notes or one.severity is not Severity.NOTE]
    for where, problem in shown:
        value = "" if problem.value is None else f" = {json.dumps(problem.value, default=_plain)[:120]}"
        lines.append(f"{problem.severity:<8}{problem.field}{value}  [{problem.rule}]")
        text = f"{problem.message} {problem.remedy}"
        lines += [f"        {line}" for line in textwrap.wrap(text, 100)]
        lines.append(f"        {where}")
    counts = {level: sum(one.severity is level for _where, one in found) for level in Severity}
    listed = (f"{count} {level}{'s' if count != 1 else ''}" for level, count in counts.items())
    lines.append(f"{jobs or 'no'} job{'s' if jobs != 1 else ''} found: {', '.join(listed)}")
    return "\n".join(lines)
