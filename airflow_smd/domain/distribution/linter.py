"""All problems of a job at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from airflow_smd.domain.distribution import channels
from airflow_smd.domain.distribution.images import Catalogue, image_of
from airflow_smd.domain.distribution.job import Form, Job
from airflow_smd.domain.distribution.requests import wire_field
from airflow_smd.domain.distribution.rules import RULES, Rule
from airflow_smd.domain.distribution.rules.base import Finding
from airflow_smd.domain.distribution.shapes import check
from airflow_smd.errors import InvalidInput, Problem, Severity

_ORDER = list(Severity)


def lint(job: Job, catalogue: Catalogue, silenced: Iterable[str] = ()) -> tuple[Problem, ...]:
    """Return every problem of a job; see the package's own function."""
    ignored = frozenset(silenced)
    problems = [*job.problems]
    for rule in RULES.values():
        if rule.name not in ignored:
            problems += (_named(rule, found) for found in rule.check(job, catalogue))
    problems += channels.channels(job)[1]
    problems += _image(job, catalogue)
    named = [replace(problem, field=wire_field(problem.field, job.form)) for problem in problems]
    named += _request(job, catalogue, problems)
    kept = {
        (problem.rule, problem.field, repr(problem.value)): problem
        for problem in named
        if problem.rule not in ignored
    }
    return tuple(sorted(kept.values(), key=lambda problem: _ORDER.index(problem.severity)))


def _request(job: Job, catalogue: Catalogue, problems: list[Problem]) -> list[Problem]:
    """Return for what AWS would refuse the finished request, as far as the job is whole."""
    if catalogue.request is None:
        return []
    if job.form is Form.REQUEST:  # its name is given anew at launch
        return list(check({**job.request, "TrainingJobName": "x"}, catalogue.request))
    broken = any(problem.severity is Severity.ERROR for problem in problems)
    if broken or job.form is Form.DISTRIBUTION or job.get("training_recipe") or not catalogue.images:
        return []
    from airflow_smd.domain.distribution.compiler import build, conventional_uris

    source_uri, output_uri = conventional_uris(job, "x")
    try:
        request = build(job, catalogue, "x", source_uri, output_uri)
    except InvalidInput as refused:
        return list(refused.problems)
    return list(check(request, catalogue.request))


def _named(rule: Rule, found: Finding) -> Problem:
    return Problem(
        rule=rule.name,
        field=found.field,
        value=found.value,
        message=found.message,
        remedy=found.remedy,
        severity=found.severity or rule.severity,
    )


def _image(job: Job, catalogue: Catalogue) -> list[Problem]:
    if job.form is not Form.ESTIMATOR or not catalogue.images or job.get("training_recipe"):
        return []
    if job.get("tensorflow_version") and job.get("pytorch_version"):
        return []  # hugging-face-versions says it
    image = image_of(job, catalogue)
    return [image] if isinstance(image, Problem) else []
