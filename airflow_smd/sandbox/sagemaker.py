"""SageMaker's API on top of moto: training and processing jobs really run, the rest is moto's."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from moto.core.responses import ActionResult, EmptyResult
from moto.sagemaker import urls
from moto.sagemaker.exceptions import AWSValidationException
from moto.sagemaker.responses import SageMakerResponse

from airflow_smd.sandbox.jobs.record import Job, Kind
from airflow_smd.sandbox.jobs.service import Jobs
from airflow_smd.sandbox.runtime import Runtime

_DEFAULT_PAGE = 10
"""MaxResults of ListTrainingJobs and ListProcessingJobs if it is not given (API reference)."""
_SUMMARY = {
    Kind.TRAINING: (
        "TrainingJobName", "TrainingJobArn", "CreationTime", "TrainingEndTime", "LastModifiedTime",
        "TrainingJobStatus", "SecondaryStatus",
    ),
    Kind.PROCESSING: (
        "ProcessingJobName", "ProcessingJobArn", "CreationTime", "ProcessingEndTime", "LastModifiedTime",
        "ProcessingJobStatus", "FailureReason", "ExitMessage",
    ),
}  # fmt: skip
_SORT_KEYS: dict[str, Callable[[Job], Any]] = {
    "Name": lambda job: job.name,
    "CreationTime": lambda job: (job.described["CreationTime"], job.name),
    "Status": lambda job: (job.status, job.name),
}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "Equals": lambda has, wanted: str(has) == wanted,
    "NotEquals": lambda has, wanted: str(has) != wanted,
    "Contains": lambda has, wanted: has is not None and wanted in str(has),
    "Exists": lambda has, _: has is not None,
    "NotExists": lambda has, _: has is None,
    "In": lambda has, wanted: str(has) in wanted.split(","),
    "GreaterThan": lambda has, wanted: has is not None and str(has) > wanted,
    "GreaterThanOrEqualTo": lambda has, wanted: has is not None and str(has) >= wanted,
    "LessThan": lambda has, wanted: has is not None and str(has) < wanted,
    "LessThanOrEqualTo": lambda has, wanted: has is not None and str(has) <= wanted,
}


class JobsResponse(SageMakerResponse):
    """Answers the job operations; moto answers the rest."""

    jobs: ClassVar[Jobs]

    def create_training_job(self) -> ActionResult:
        """CreateTrainingJob."""
        return ActionResult({"TrainingJobArn": self.jobs.create(Kind.TRAINING, self._request()).arn})

    def describe_training_job(self) -> ActionResult:
        """DescribeTrainingJob."""
        return self._describe(Kind.TRAINING)

    def list_training_jobs(self) -> ActionResult:
        """ListTrainingJobs."""
        return self._list(Kind.TRAINING)

    def stop_training_job(self) -> ActionResult:
        """StopTrainingJob."""
        self.jobs.stop(Kind.TRAINING, self._get_param("TrainingJobName"))
        return EmptyResult()

    def delete_training_job(self) -> ActionResult:
        """DeleteTrainingJob."""
        self.jobs.delete(Kind.TRAINING, self._get_param("TrainingJobName"))
        return EmptyResult()

    def update_training_job(self) -> ActionResult:
        """UpdateTrainingJob."""
        changes = self._request()
        job = self.jobs.update_training(changes.pop("TrainingJobName"), changes)
        return ActionResult({"TrainingJobArn": job.arn})

    def create_processing_job(self) -> ActionResult:
        """CreateProcessingJob."""
        return ActionResult({"ProcessingJobArn": self.jobs.create(Kind.PROCESSING, self._request()).arn})

    def describe_processing_job(self) -> ActionResult:
        """DescribeProcessingJob."""
        return self._describe(Kind.PROCESSING)

    def list_processing_jobs(self) -> ActionResult:
        """ListProcessingJobs."""
        return self._list(Kind.PROCESSING)

    def stop_processing_job(self) -> ActionResult:
        """StopProcessingJob."""
        self.jobs.stop(Kind.PROCESSING, self._get_param("ProcessingJobName"))
        return EmptyResult()

    def delete_processing_job(self) -> ActionResult:
        """DeleteProcessingJob."""
        self.jobs.delete(Kind.PROCESSING, self._get_param("ProcessingJobName"))
        return EmptyResult()

    def list_tags(self) -> ActionResult:
        """ListTags."""
        job = self.jobs.by_arn(self._get_param("ResourceArn"))
        if job is None:
            return super().list_tags()
        return ActionResult({"Tags": _as_list(job.tags)})

    def add_tags(self) -> ActionResult:
        """AddTags."""
        job = self.jobs.by_arn(self._get_param("ResourceArn"))
        if job is None:
            return super().add_tags()
        self.jobs.tag(job, {tag["Key"]: tag["Value"] for tag in self._get_param("Tags")})
        return ActionResult({"Tags": _as_list(job.tags)})

    def delete_tags(self) -> ActionResult:
        """DeleteTags."""
        job = self.jobs.by_arn(self._get_param("ResourceArn"))
        if job is None:
            return super().delete_tags()
        self.jobs.tag(job, {}, self._get_param("TagKeys"))
        return EmptyResult()

    def search(self) -> ActionResult:
        """Search; over training jobs ours, over anything else moto's."""
        if self._get_param("Resource") != "TrainingJob":
            return super().search()
        expression = self._get_param("SearchExpression") or {}
        found = [job for job in self.jobs.store.of_kind(Kind.TRAINING) if _satisfies(job, expression)]
        found.sort(
            key=lambda job: job.described["LastModifiedTime"],
            reverse=self._get_param("SortOrder") != "Ascending",
        )
        page, token = _page(found, self._get_param("NextToken"), self._get_param("MaxResults"))
        results = [{"TrainingJob": {**job.as_aws(), "Tags": _as_list(job.tags)}} for job in page]
        return ActionResult({"Results": results} | token)

    def _request(self) -> dict[str, Any]:
        request: dict[str, Any] = json.loads(self.body)
        return request

    def _describe(self, kind: Kind) -> ActionResult:
        with self.jobs.store.lock:
            return ActionResult(self.jobs.get(kind, self._get_param(f"{kind.prefix}Name")).as_aws())

    def _list(self, kind: Kind) -> ActionResult:
        chosen = [job for job in self.jobs.store.of_kind(kind) if self._wanted(job)]
        chosen.sort(
            key=_SORT_KEYS[self._get_param("SortBy") or "CreationTime"],
            reverse=self._get_param("SortOrder") == "Descending",
        )
        page, token = _page(chosen, self._get_param("NextToken"), self._get_param("MaxResults"))
        with self.jobs.store.lock:
            summaries = [
                {key: value for key, value in job.as_aws().items() if key in _SUMMARY[kind]} for job in page
            ]
        return ActionResult({f"{kind.prefix}Summaries": summaries} | token)

    def _wanted(self, job: Job) -> bool:
        status, part = self._get_param("StatusEquals"), self._get_param("NameContains")
        if (status and job.status != status) or (part and part.lower() not in job.name.lower()):
            return False
        for name in ("CreationTime", "LastModifiedTime"):
            after, before = self._moment(f"{name}After"), self._moment(f"{name}Before")
            moment = job.described[name]
            if (after is not None and moment <= after) or (before is not None and moment >= before):
                return False
        return True

    def _moment(self, name: str) -> float | None:
        value = self._get_param(name)
        return value.timestamp() if isinstance(value, datetime) else None if value is None else float(value)


def _page(jobs: Sequence[Job], token: str | None, limit: int | None) -> tuple[Sequence[Job], dict[str, str]]:
    """Return a page and, if more follows, the token of the next."""
    start = 0
    if token:
        try:
            start = int(base64.urlsafe_b64decode(token))
        except ValueError as error:
            raise AWSValidationException("Invalid pagination token.") from error
    end = start + int(limit or _DEFAULT_PAGE)
    more = {"NextToken": base64.urlsafe_b64encode(str(end).encode()).decode()} if end < len(jobs) else {}
    return jobs[start:end], more


def _satisfies(job: Job, expression: Mapping[str, Any]) -> bool:
    described = {**job.request, **job.described}
    answers = []
    for item in expression.get("Filters") or []:
        name = item["Name"]
        has: Any = described
        if name.startswith("Tags."):
            has = job.tags.get(name.removeprefix("Tags."))
        else:
            for part in name.split("."):
                has = has.get(part) if isinstance(has, Mapping) else None
        answers.append(_OPERATORS[item.get("Operator", "Equals")](has, item.get("Value", "")))
    answers += [_satisfies(job, inner) for inner in expression.get("SubExpressions") or []]
    return any(answers) if expression.get("Operator") == "Or" and answers else all(answers)


def _as_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def register(runtime: Runtime) -> Jobs:
    """Put the job operations of this sandbox in front of moto's; call before the first request."""
    jobs = Jobs(runtime)
    response: Any = type("SandboxSageMaker", (JobsResponse,), {"jobs": jobs})
    urls.url_paths["{0}/$"] = response.dispatch
    runtime.at_stop(jobs.stop_all)
    return jobs
