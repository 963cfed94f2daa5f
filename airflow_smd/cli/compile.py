"""airflow-smd compile: the CreateTrainingJob request of a job."""

from __future__ import annotations

import argparse
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from airflow_smd.aws.containers import installed_catalogue
from airflow_smd.cli.job_files import read_jobs
from airflow_smd.cli.lint import report
from airflow_smd.domain.distribution import Job, compile_job, conventional_uris, image_of
from airflow_smd.errors import InvalidInput, Problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take one file, and what the file does not say."""
    parser.add_argument("file", type=Path, metavar="job.json|job.yaml")
    parser.add_argument("--name", help="the job's name; default: base_job_name and the time")
    parser.add_argument("--overrides", default="{}", metavar="JSON", help="laid over the request last")
    parser.add_argument("--ignore", action="append", default=[], metavar="RULE", help="silence a rule")


def run(arguments: argparse.Namespace) -> int:
    """Print the request, or the problems as JSON on standard error and return 1."""
    try:
        print(json.dumps(request_of(arguments), indent=2))
    except InvalidInput as refused:
        print(report(refused.problems), file=sys.stderr)
        return 1
    return 0


def request_of(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the request of the one job in a file; code and output go where SDK v2 puts them."""
    job = _only_job(arguments.file)
    name = arguments.name or job.request.get("TrainingJobName") or default_name(job, datetime.now(UTC))
    source_uri, output_uri = conventional_uris(job, name)
    return compile_job(
        job,
        installed_catalogue(),
        name=name,
        source_uri=source_uri,
        output_uri=output_uri,
        overrides=_overrides(arguments.overrides),
        silenced=tuple(arguments.ignore),
    )


def default_name(job: Job, now: datetime) -> str:
    """Return a name as SDK v2 makes it: the base name or the image's, and the time to the millisecond."""
    base = job.get("base_job_name")
    if not base:
        image = image_of(job, installed_catalogue())
        base = re.split("[:@]", image)[0].rpartition("/")[2] if isinstance(image, str) else "job"
    stamp = now.strftime("%Y-%m-%d-%H-%M-%S-") + f"{now.microsecond // 1000:03}"
    return f"{base[: 62 - len(stamp)]}-{stamp}"


def _only_job(path: Path) -> Job:
    found = read_jobs(path)
    if len(found) == 1 and found[0].complete:
        return found[0].job
    raise InvalidInput(
        [
            Problem(
                rule="not-one-job",
                field=str(path),
                value=len(found),
                message="Only one whole job can be compiled; Python is read, not run.",
                remedy="Give a .json or .yaml file.",
            )
        ]
    )


def _overrides(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    raise InvalidInput(
        [
            Problem(
                rule="overrides",
                field="--overrides",
                value=text[:200],
                message="It must be a JSON object of CreateTrainingJob fields.",
                remedy="""Write '{"StoppingCondition": {"MaxRuntimeInSeconds": 3600}}'.""",
            )
        ]
    )
