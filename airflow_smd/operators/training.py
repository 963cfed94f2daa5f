"""Distributed training on SageMaker as one task: exactly one job, stopped when the task is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_smd.domain.distribution import Job, compile_job, lint
from airflow_smd.domain.logs import first_error
from airflow_smd.domain.training import (
    Follow,
    Launch,
    Outcome,
    TrainingRun,
    WaitOut,
    channel_input,
    failure,
    merged_tags,
    next_step,
    outcome,
)
from airflow_smd.errors import TrainingFailed, refuse
from airflow_smd.operators.base import as_arguments, folder_problems, job_problems
from airflow_smd.operators.jobs import SageMakerJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_smd.aws.logs import JobLogs
    from airflow_smd.aws.source import SourceStore
    from airflow_smd.aws.training import TrainingJobs
    from airflow_smd.domain.identity import TaskIdentity

FROM_FILE_SYSTEM = ("vpc-pair", "file-system-needs-vpc")
"""Lint rules about what the file system's task tells."""


class SageMakerDistributedTrainingOperator(SageMakerJobOperator):
    """Run one distributed training job and return what it made.

    A retry follows the job that an earlier try started; clearing the task starts a new one. The job is
    checked before anything is created, and stopped when the task is killed or runs into its timeout.

    Args:
        job: the arguments of the SageMaker SDK's estimator under their own names (`entry_point`,
            `source_dir`, `instance_type`, `instance_count`, `distribution`, `hyperparameters`, `role`, ...).
        estimator: `PyTorch`, `TensorFlow`, `HuggingFace` or `Estimator`.
        inputs: what the SDK's `fit` takes: an S3 URI or a mapping of channel to S3 URI.
        file_system: the result of :class:`LustreCreateOperator`; becomes the channel `training` and the VPC.
        work_uri: `s3://bucket/prefix` for the packed code and the output.
        overrides: fields of CreateTrainingJob, merged last.
        ignore_rules: names of lint rules to leave out.

    Returns:
        The job's name, model, metrics, seconds and instances, as JSON (see `_result`).

    Raises:
        InvalidInput: the job has problems; nothing was created.
        TrainingFailed: a subclass for each kind of failure, with SageMaker's reason.
        TaskTimedOut: `execution_timeout` passed; the job was stopped.
    """

    template_fields: Sequence[str] = ("job", "inputs", "file_system", "work_uri", "overrides")
    template_fields_renderers = {"job": "json", "overrides": "json"}  # noqa: RUF012  # Airflow's own form

    def __init__(
        self,
        *,
        job: Mapping[str, Any],
        work_uri: str,
        estimator: str = "PyTorch",
        inputs: Any = None,
        file_system: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
        ignore_rules: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.work_uri = work_uri
        self.estimator = estimator
        self.inputs = inputs
        self.file_system = file_system
        self.overrides = overrides
        self.ignore_rules = ignore_rules
        later = FROM_FILE_SYSTEM if file_system is not None else ()
        refuse(
            [
                *folder_problems(work_uri=work_uri),
                *job_problems(estimator, job, inputs, silenced=(*ignore_rules, *later)),
            ]
        )

    @cached_property
    def jobs(self) -> TrainingJobs:
        """Return the training jobs of our connection."""
        from airflow_smd.hooks.training import TrainingHook

        return TrainingHook(self.connection).jobs

    @cached_property
    def logs(self) -> JobLogs:
        """Return the hosts' logs of our connection."""
        from airflow_smd.hooks.training import TrainingHook

        return TrainingHook(self.connection).logs

    @cached_property
    def source(self) -> SourceStore:
        """Return where the code is kept."""
        from airflow_smd.hooks.training import TrainingHook

        return TrainingHook(self.connection).source(self.work_uri)

    def execute(self, context: Context) -> Any:
        """Follow the job of this task, or check and launch it; then wait."""
        identity = self.identity(context)
        earlier = self.jobs.attempts(identity)
        match next_step(identity, earlier):
            case Follow(job_name) if outcome(earlier[-1].status) is Outcome.SUCCEEDED:
                self.log.info("%s has succeeded already", job_name)
                return self.finish(context, {"job_name": job_name})
            case WaitOut(job_name):
                self.log.info("%s is being stopped; a new job starts when it is gone", job_name)
                return self._wait(context, job_name, "execute_again")
            case Follow(job_name):
                self.log.info("Following %s, which is already there", job_name)
            case Launch(job_name):
                self.launch(identity, job_name, self._request(identity, job_name))
        return self._wait(context, job_name, "finish")

    def finish(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the job's result, or raise the error of its kind."""
        job_name = event["job_name"]
        self.stop_after_timeout(event)
        run = self.jobs.look(job_name)
        if run is None:
            raise TrainingFailed(job_name, "The job was deleted while the task waited for it.")
        if "log" in event:
            self._show_rest(run, event["log"])
        if outcome(run.status) is not Outcome.SUCCEEDED:
            self._explain(run)
            raise failure(run)
        result = self._result(run, self.identity(context))
        self.log.info("%s succeeded after %s s, %s", job_name, result["seconds"], result["metrics"])
        return result

    def _request(self, identity: TaskIdentity, job_name: str) -> dict[str, Any]:
        from airflow_smd.aws.containers import installed_catalogue
        from airflow_smd.aws.source import local_source

        job = Job.parse(
            {
                "estimator": self.estimator,
                "region": self.jobs.region,
                "kwargs": {**self.job, **self._network()},
                "fit": self._inputs(),
            }
        )
        catalogue = installed_catalogue()
        source, missing = local_source(self.job)
        self.refuse([*missing, *as_arguments(lint(job, catalogue, silenced=self.ignore_rules))])
        overrides = self.overrides or {}
        tags = merged_tags(self.job.get("tags"), overrides.get("Tags"), identity.tags)
        return compile_job(
            job,
            catalogue,
            name=job_name,
            source_uri=self.source.put(source) if source else "",
            output_uri=f"{self.work_uri.rstrip('/')}/output",
            overrides={**overrides, "Tags": tags},
            silenced=tuple(self.ignore_rules),
        )

    def _network(self) -> dict[str, Any]:
        vpc = (self.file_system or {}).get("vpc_config")
        return {"subnets": vpc["Subnets"], "security_group_ids": vpc["SecurityGroupIds"]} if vpc else {}

    def _inputs(self) -> Any:
        if not self.file_system:
            return self.inputs
        channels = self.inputs if isinstance(self.inputs, Mapping) else {}
        return {**channels, "training": channel_input(self.file_system)}

    def _wait(self, context: Context, job_name: str, method_name: str) -> Any:
        from airflow_smd.triggers.training import TrainingTrigger

        self.following = job_name
        return self.wait(context, TrainingTrigger(job_name=job_name, **self.waiting()), method_name)

    def _show_rest(self, run: TrainingRun, cursor: Mapping[str, Any]) -> None:
        """Show what the hosts wrote after the trigger's last look at their log."""
        from airflow_smd.aws.logs import LogReader

        reader = LogReader(lambda: self.logs, run.job_name, cursor)
        try:
            while True:
                for text in reader.read(run.instance_count):
                    self.log.info("%s", text)
                if not reader.more:
                    return
        except Exception as error:  # whatever it is, the job's end counts
            self.log.warning("The rest of the log cannot be read: %s", error)

    def _explain(self, run: TrainingRun) -> None:
        """Put the first error of any host into the task log; the launcher's last line says little."""
        try:
            lines = sorted(self.logs.tail(run.job_name, 1000), key=lambda line: line.at)
        except Exception as error:  # whatever it is, the job's own failure counts
            self.log.error("The log of %s cannot be read: %s", run.job_name, error)
            return
        if not lines:
            self.log.error("%s wrote no log: look in %s", run.job_name, "/aws/sagemaker/TrainingJobs")
        for line in first_error(lines) or lines[-20:]:
            self.log.error("%s | %s", line.host, line.text)

    @staticmethod
    def _result(run: TrainingRun, identity: TaskIdentity) -> dict[str, Any]:
        return {
            "job_name": run.job_name,
            "job_arn": run.job_arn,
            "generation": identity.generation,
            "status": str(run.status),
            "model_uri": run.model_uri,
            "image_uri": run.image_uri,
            "instance_type": run.instance_type,
            "instance_count": run.instance_count,
            "started_at": _iso(run.started_at),
            "ended_at": _iso(run.ended_at),
            "seconds": run.training_seconds,
            "billable_seconds": run.billable_seconds,
            "metrics": dict(run.metrics),
        }


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
