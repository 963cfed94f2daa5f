"""Everything that can be wrong with a run, found before anything is created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_smd.domain.cost import budget_problems, instances_line, run_cost
from airflow_smd.domain.distribution import Job, lint
from airflow_smd.errors import InvalidInput, Problem, Severity, refuse
from airflow_smd.operators.base import (
    SmdOperator,
    as_arguments,
    folder_problems,
    job_problems,
    known_at_parse,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_smd.aws.preflight import Account

LONGEST_RUN_SECONDS = 86400
"""MaxRuntimeInSeconds where the job does not say (SageMaker's own default)."""


class TrainingPreflightOperator(SmdOperator):
    """Check the job, the data, the bucket, the role and the budget of a run together.

    Args:
        job: as for :class:`SageMakerDistributedTrainingOperator`; `image_uri` may be missing.
        source_uri: S3 prefix of the raw data.
        work_uri: S3 prefix that the run writes to.
        estimator: as for :class:`SageMakerDistributedTrainingOperator`.
        budget_usd: refuse the run if its training can cost more than this: all instances for `max_run`.
        ignore_rules: names of lint rules to leave out.

    Returns:
        `at_most_usd` (training for `max_run`, None where there is no price) and `warnings`.

    Raises:
        InvalidInput: all that is wrong, at once.
    """

    template_fields: Sequence[str] = ("job", "source_uri", "work_uri", "budget_usd")

    def __init__(
        self,
        *,
        job: Mapping[str, Any],
        source_uri: str,
        work_uri: str,
        estimator: str = "PyTorch",
        budget_usd: float | str | None = None,
        ignore_rules: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.source_uri = source_uri
        self.work_uri = work_uri
        self.estimator = estimator
        self.budget_usd = budget_usd
        self.ignore_rules = ignore_rules
        problems = folder_problems(source_uri=source_uri, work_uri=work_uri)
        problems += job_problems(estimator, job, silenced=ignore_rules)
        if known_at_parse(budget_usd):
            problems += _budget(budget_usd)[1]
        refuse(problems)

    @cached_property
    def account(self) -> Account:
        """Return what answers questions about our connection's account."""
        from airflow_smd.hooks.preflight import account

        return account(self.connection)

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  # the same for every run
        """Collect every problem, then refuse or go on."""
        from airflow_smd.aws.containers import installed_catalogue

        problems = list(
            self.account.problems(
                source_uri=self.source_uri, work_uri=self.work_uri, role=str(self.job.get("role", ""))
            )
        )
        try:
            parsed = Job.parse(
                {"estimator": self.estimator, "region": self.account.region, "kwargs": self.job}
            )
        except InvalidInput as error:
            raise InvalidInput([*problems, *error.problems]) from error
        told = {problem.rule for problem in problems}
        found = as_arguments(lint(parsed, installed_catalogue(), silenced=self.ignore_rules))
        problems += [problem for problem in found if problem.rule not in told]
        cost = run_cost(
            [
                instances_line(
                    "training",
                    instance_type=parsed.instance_type,
                    count=max(1, parsed.hosts),
                    seconds=float(parsed.get("max_run", LONGEST_RUN_SECONDS)),
                    region=self.account.region,
                )
            ]
        )
        budget_usd, unreadable = _budget(self.budget_usd)
        problems += unreadable or budget_problems(cost, budget_usd)
        warnings = [problem for problem in problems if problem.severity is not Severity.ERROR]
        self.refuse(problems)
        self.log.info("Nothing speaks against this run; its training costs at most %s", cost)
        return {"at_most_usd": cost.total_usd, "warnings": [str(problem) for problem in warnings]}


def _budget(value: float | str | None) -> tuple[float | None, list[Problem]]:
    try:
        budget_usd = None if value is None else float(value)
    except ValueError:
        budget_usd = 0.0
    if budget_usd is None or budget_usd > 0:
        return budget_usd, []
    message, remedy = "A number of US dollars above 0 is needed.", "Write a number such as 50."
    problem = Problem(
        rule="budget-unreadable", field="budget_usd", value=value, message=message, remedy=remedy
    )
    return None, [problem]
