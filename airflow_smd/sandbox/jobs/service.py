"""The jobs of one sandbox: create, find, stop, delete; survive a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from moto.sagemaker.exceptions import AWSValidationException, ResourceInUseException, ResourceNotFound

from airflow_smd.sandbox.jobs import cloud, machines, processing, rules, training
from airflow_smd.sandbox.jobs.execution import INTERNAL_ERROR, Work
from airflow_smd.sandbox.jobs.hosts import Isolation, choose
from airflow_smd.sandbox.jobs.logs import METRICS_NAMESPACE, JobLog
from airflow_smd.sandbox.jobs.record import Job, Kind, Secondary, Status, Store
from airflow_smd.sandbox.runtime import Runtime

_PROCESSING_METRICS = "/aws/sagemaker/ProcessingJobs"
_STOP_WAIT_SECONDS = 15


class Jobs:
    """Every training and processing job of one sandbox."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._cloud = cloud.Cloud(runtime)
        cloud.remove(runtime.directory("jobs") / "work")
        self.store = Store(runtime.directory("jobs"))
        self._running: dict[tuple[Kind, str], tuple[Work, threading.Thread]] = {}
        self._isolation: Isolation | None = None
        self.isolation_note = ""
        """Which isolation the hosts have and why, known once the first job was created."""
        self._fail_what_was_running()

    def isolation(self) -> Isolation:
        """Return how hosts are kept apart here; tried once."""
        if self._isolation is None:
            self._isolation, self.isolation_note = choose(self._runtime)
        return self._isolation

    def create(self, kind: Kind, request: dict[str, Any]) -> Job:
        """Check a request as AWS does and start the job."""
        region = self._runtime.settings.region
        tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags") or []}
        job = Job(kind=kind, region=region, request=request, tags=tags)
        check = rules.training_problem if kind is Kind.TRAINING else rules.processing_problem
        self._refuse_duplicate(job)
        if problem := check(self._cloud, region, request):
            raise AWSValidationException(problem)
        work = self._work(job)
        with self.store.lock:
            self._refuse_duplicate(job)
            job.begin()
            if kind is Kind.TRAINING:
                job.enter(Secondary.STARTING, "Starting the training job")
            self.store.save(job)
        run = training.TrainingRun(work) if kind is Kind.TRAINING else processing.ProcessingRun(work)
        thread = threading.Thread(target=self._carry_out, args=(work, run), name=job.arn, daemon=True)
        self._running[kind, job.name] = (work, thread)
        thread.start()
        return job

    def get(self, kind: Kind, name: str) -> Job:
        """Return a job or fail as AWS does."""
        job = self.store.find(kind, name)
        if job is None:
            if kind is Kind.TRAINING:
                raise AWSValidationException("Requested resource not found.")
            raise AWSValidationException(f"Could not find requested job with name: {name}")
        return job

    def stop(self, kind: Kind, name: str) -> None:
        """Stop a job; AWS refuses for one that has ended and ignores it for one that is stopping."""
        with self.store.lock:
            job = self.get(kind, name)
            if job.status.final:
                what = "training" if kind is Kind.TRAINING else "processing"
                raise AWSValidationException(
                    f"The request was rejected because the {what} job is in status {job.status}."
                )
            job.described[f"{kind.prefix}Status"] = Status.STOPPING
            if kind is Kind.TRAINING and job.secondary is not Secondary.STOPPING:
                job.enter(Secondary.STOPPING, "Stopping the training job")
            self.store.save(job)
        running = self._running.get((kind, name))
        if running:
            running[0].stop()

    def delete(self, kind: Kind, name: str) -> None:
        """Delete a job that has ended."""
        with self.store.lock:
            job = self.store.find(kind, name)
            if job is None:
                raise ResourceNotFound(message="Requested resource not found.")
            if not job.status.final:
                raise ResourceInUseException(message=f"The job {job.arn} is in status {job.status}.")
            self.store.delete(job)

    def update_training(self, name: str, changes: dict[str, Any]) -> Job:
        """Change what UpdateTrainingJob may change: profiler, remote debugging, keep-alive."""
        with self.store.lock:
            job = self.store.find(Kind.TRAINING, name)
            if job is None:
                raise ResourceNotFound(message="Requested resource not found.")
            if job.status.final and set(changes) != {"ResourceConfig"}:
                raise AWSValidationException(f"Invalid training job status: {job.status}.")
            for key, value in changes.items():
                job.request[key] = (
                    {**(job.request.get(key) or {}), **value} if isinstance(value, dict) else value
                )
            job.described["LastModifiedTime"] = time.time()
            self.store.save(job)
        return job

    def by_arn(self, arn: str) -> Job | None:
        """Return the job with an ARN; None if the ARN is of something else. A missing job is AWS's error."""
        kind, _, name = arn.rpartition(":")[2].partition("/")
        return self.get(Kind(kind), name) if kind in list(Kind) else None

    def tag(self, job: Job, added: dict[str, str], removed: Iterable[str] = ()) -> None:
        """Set and remove tags."""
        with self.store.lock:
            job.tags = {key: value for key, value in {**job.tags, **added}.items() if key not in set(removed)}
            if len(job.tags) > 50:
                raise AWSValidationException("The number of tags exceeds the limit of 50.")
            self.store.save(job)

    def stop_all(self) -> None:
        """End the hosts of every job at once; the state on disk says that they were running."""
        running = list(self._running.values())
        for work, _ in running:
            work.abandon()
        deadline = time.monotonic() + _STOP_WAIT_SECONDS
        for _, thread in running:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))

    def _refuse_duplicate(self, job: Job) -> None:
        if self.store.find(job.kind, job.name) is None:
            return
        if job.kind is Kind.TRAINING:
            what, it = "Training job names", "a training job"
        else:
            what, it = "Job name", "a job"
        raise ResourceInUseException(
            message=f"{what} must be unique within an AWS account and region, and {it} with this name already"
            f" exists ({job.arn})"
        )

    def _work(self, job: Job) -> Work:
        training_job = job.kind is Kind.TRAINING
        its_machines = (
            machines.training_machines(job.request["ResourceConfig"])
            if training_job
            else machines.processing_machines(job.request["ProcessingResources"]["ClusterConfig"])
        )
        definitions = (
            job.request["AlgorithmSpecification"].get("MetricDefinitions", []) if training_job else []
        )
        group = training.LOG_GROUP if training_job else processing.LOG_GROUP
        return Work(
            runtime=self._runtime,
            store=self.store,
            cloud=self._cloud,
            isolation=self.isolation(),
            job=job,
            machines=its_machines,
            log=JobLog(self._cloud, group, job.name, definitions),
            metrics_namespace=METRICS_NAMESPACE if training_job else _PROCESSING_METRICS,
        )

    def _carry_out(self, work: Work, run: training.TrainingRun | processing.ProcessingRun) -> None:
        try:
            work.carry_out(run.run, run.fail)
        finally:
            self._running.pop((work.job.kind, work.job.name), None)

    def _fail_what_was_running(self) -> None:
        """Fail each job that runs in the books: its hosts died with an earlier sandbox."""
        for kind in Kind:
            for job in self.store.of_kind(kind):
                if job.status.final:
                    continue
                if kind is Kind.TRAINING:
                    job.enter(Secondary.FAILED, "Training job failed")
                job.finish(Status.FAILED, INTERNAL_ERROR)
                end = "TrainingEndTime" if kind is Kind.TRAINING else "ProcessingEndTime"
                job.described[end] = time.time()
                self.store.save(job)
