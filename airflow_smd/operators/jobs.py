"""A task that runs exactly one SageMaker job, of whatever kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_smd.errors import NameTaken, NotOurs, TaskTimedOut
from airflow_smd.operators.base import SmdOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_smd.domain.identity import TaskIdentity


class SageMakerJobOperator(SmdOperator):
    """What the tasks share that launch a job, follow it and stop it when they are killed.

    A subclass has `jobs` (:class:`SageMakerJobs`) and sets `following` before it waits.
    """

    jobs: Any

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.following: str | None = None

    def launch(self, identity: TaskIdentity, job_name: str, request: Mapping[str, Any]) -> None:
        """Launch a job; where another try has just done it, follow that one.

        Raises:
            NotOurs: a job of this name is there that this task did not start.
        """
        try:
            self.jobs.launch(request)
            self.log.info("Launched %s", job_name)
        except NameTaken:
            run = self.jobs.look(job_name)
            if run is None or self.jobs.owner(run.job_arn) != identity.base_name:
                raise NotOurs(f"{job_name} is there, but without our tag airflow-smd:name") from None
            self.log.info("Following %s, which another try has just launched", job_name)

    def execute_again(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Decide again after a job that was being stopped is gone."""
        self.stop_after_timeout(event)
        self.log.info("%s is gone", event["job_name"])
        return self.execute(context)

    def stop_after_timeout(self, event: Mapping[str, Any]) -> None:
        """Stop the job and raise TaskTimedOut if the wait ran into `execution_timeout`."""
        if event.get("timeout"):
            job_name = event["job_name"]
            self.jobs.stop(job_name)
            raise TaskTimedOut(f"execution_timeout={self.execution_timeout} passed; {job_name} was stopped")

    def on_kill(self) -> None:
        """Stop the job when the worker's task is killed."""
        if self.following:
            self.log.info("Stopping %s, since the task is killed", self.following)
            self.jobs.stop(self.following)
