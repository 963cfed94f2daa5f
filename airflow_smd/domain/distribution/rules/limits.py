"""Time and money: runtime, Spot, warm pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Form, Job, whole_number
from airflow_smd.domain.distribution.rules.base import E, Finding, N, W, finding, rule

API = "CreateTrainingJob"
DEFAULT_RUNTIME_SECONDS = 86400
LONGEST_SECONDS = 28 * 86400
KEEP_ALIVE_LIMIT_SECONDS = 21600
PENDING_LIMITS_SECONDS = (1800, 2419200)


@rule("runtime-limit", E, f"{API}, StoppingCondition: 28 days")
def runtime_limit(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A runtime that AWS does not allow."""
    limit = job.get("max_run")
    if limit is not None and not 1 <= limit <= LONGEST_SECONDS:
        yield finding(
            "max_run",
            limit,
            f"Allowed are 1 to {LONGEST_SECONDS} seconds (28 days).",
            "Lower it, and checkpoint.",
        )


@rule("runtime-default", N, "SDK v2 sets 24 hours, SDK v3 one hour")
def runtime_default(job: Job, _: Catalogue) -> Iterator[Finding]:
    """No runtime limit of one's own: a job that hangs is paid for a day."""
    if job.form is Form.ESTIMATOR and job.get("max_run") is None and job.hosts:
        yield finding(
            "max_run",
            None,
            f"A job that hangs is paid for up to {24 * job.hosts} instance hours of {job.instance_type}.",
            "Set it a little above the time that you expect.",
        )


@rule("runtime-below-need", E, "the limit stops the job, and the run is lost")
def runtime_below_need(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A runtime limit below the time that the epochs need."""
    limit = job.get("max_run", DEFAULT_RUNTIME_SECONDS)
    needed = job.workload.needed_seconds
    if needed > limit:
        yield finding(
            "max_run",
            limit,
            f"{job.workload.epochs:g} epochs of {job.workload.epoch_seconds:g} s need {needed:.0f} s.",
            f"Set it to {int(needed * 1.2) + 1}, or resume from checkpoints.",
        )


@rule("task-timeout", W, "Airflow kills the task while the job may still run")
def task_timeout(job: Job, _: Catalogue) -> Iterator[Finding]:
    """An execution_timeout of the task below the job's own limit."""
    timeout = job.workload.execution_timeout_seconds
    limit = job.get("max_wait") or job.get("max_run", DEFAULT_RUNTIME_SECONDS)
    if timeout and timeout < limit:
        yield finding(
            "workload.execution_timeout_seconds",
            timeout,
            f"The job may take {limit} s, and waiting for capacity comes on top.",
            f"Set the task's timeout above {limit} s, or lower max_run.",
        )


@rule("spot-wait", E, f"{API}: MaxWaitTimeInSeconds is required and not below the runtime")
def spot_wait(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Spot without `max_wait`, with less than the runtime, or `max_wait` without Spot."""
    wait = job.get("max_wait")
    run = job.get("max_run", DEFAULT_RUNTIME_SECONDS)
    if job.get("use_spot_instances"):
        if not wait or wait < run:
            yield finding(
                "max_wait",
                wait,
                f"Spot needs it, and at least max_run={run}: it counts waiting and running together.",
                f"Set it to {2 * run}.",
            )
    elif wait:
        yield finding("max_wait", wait, "It is for Spot only.", "Set use_spot_instances, or remove it.")


@rule("spot-without-checkpoints", W, "SageMaker developer guide, managed Spot training")
def spot_without_checkpoints(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Spot without checkpoints: an interruption starts from nothing."""
    if job.get("use_spot_instances") and not job.get("checkpoint_s3_uri"):
        yield finding(
            "checkpoint_s3_uri",
            None,
            "An interruption loses everything so far.",
            "Set it, and save every epoch.",
        )


@rule("spot-signal", N, "sagemaker-training-toolkit #125: the script never sees SIGTERM")
def spot_signal(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Spot: the script is not told of the end, so it must save as it goes."""
    if job.get("use_spot_instances"):
        yield finding(
            "use_spot_instances",
            True,
            "The container does not pass SIGTERM on.",
            "Save at intervals, not at the end.",
        )


@rule("keep-alive", E, f"{API}: 0 to {KEEP_ALIVE_LIMIT_SECONDS} seconds")
def keep_alive(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A warm pool that is too long, or with Spot or instance groups."""
    seconds = job.get("keep_alive_period_in_seconds")
    if seconds is None:
        return
    field = "keep_alive_period_in_seconds"
    if not 0 <= seconds <= KEEP_ALIVE_LIMIT_SECONDS:
        yield finding(field, seconds, f"Allowed are 0 to {KEEP_ALIVE_LIMIT_SECONDS}.", "Lower it.")
    if seconds and job.get("use_spot_instances"):
        yield finding(field, seconds, "Warm pools do not go with Spot.", "Remove one.", W)
    if seconds and job.get("instance_groups"):
        yield finding(field, seconds, "Warm pools do not go with instance groups.", "Remove it.", W)


@rule("pending-time", E, f"{API}: {PENDING_LIMITS_SECONDS[0]} to {PENDING_LIMITS_SECONDS[1]} seconds")
def pending_time(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A pending limit outside the API's range, or for a type without accelerators."""
    stopping = job.request.get("StoppingCondition")
    seconds = stopping.get("MaxPendingTimeInSeconds") if isinstance(stopping, Mapping) else None
    value = whole_number(seconds)
    if value is None:
        return
    field = "StoppingCondition.MaxPendingTimeInSeconds"
    low, high = PENDING_LIMITS_SECONDS
    if not low <= value <= high:
        yield finding(field, value, f"Allowed are {low} to {high}.", "Choose within.")
    if job.instance and not (job.instance.gpus or job.instance.neuron_cores):
        yield finding(field, value, "It is for accelerated types.", "Remove it.")


@rule("hyperparameter-length", E, f"{API}: a hyperparameter has at most 2500 characters")
def hyperparameter_length(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Model-parallel parameters longer than a hyperparameter may be."""
    size = len(repr(dict(job.smp_parameters)))
    if size > 2500:
        yield finding(
            "distribution.smdistributed.modelparallel.parameters",
            f"{size} characters",
            "At most 2500 fit.",
            "Shorten.",
        )
