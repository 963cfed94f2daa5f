"""How many processes start, and whether the degrees fit them."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Job, whole_number
from airflow_smd.domain.distribution.rules.base import E, Finding, N, W, finding, rule
from airflow_smd.domain.distribution.rules.smp1 import PATH as SMP_PATH
from airflow_smd.domain.distribution.rules.smp1 import degree, pipeline_degree

SEED = "SageMaker developer guide, launch a model-parallel job"
PATH = "distribution.mpi.processes_per_host"


@rule("processes-over-accelerators", E, f"{SEED}; amazon-sagemaker-examples #2023")
def processes_over_accelerators(job: Job, _: Catalogue) -> Iterator[Finding]:
    """More processes on a host than it has GPUs or Neuron cores."""
    asked, have = _asked_and_there(job)
    if asked and have and asked > have:
        yield finding(
            PATH,
            asked,
            f"{job.instance_type} has {have}; each process needs one of its own.",
            f"Set it to {have}.",
        )


@rule("processes-under-accelerators", W, SEED)
def processes_under_accelerators(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Fewer processes on a host than it has GPUs, so that some are paid for and idle."""
    asked, have = _asked_and_there(job)
    if asked and asked < have and not job.instance_type.startswith("ml.trn"):
        yield finding(
            PATH,
            asked,
            f"{have - asked} of the {have} GPUs of {job.instance_type} stay idle.",
            f"Set it to {have}.",
        )


@rule("processes-per-host-text", W, "sagemaker-training 5.1.4 multiplies it with the hosts: 2 x '4' is '44'")
def processes_per_host_text(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A number of processes that is text, which the container repeats instead of multiplying."""
    given = (job.section("mpi") or {}).get("processes_per_host")
    if isinstance(given, str) and job.enabled("mpi"):
        yield finding(
            PATH,
            given,
            f"On {max(job.hosts, 2)} hosts mpirun is asked for {given * max(job.hosts, 2)} processes.",
            f"Write {given} without quotes; in a DAG set render_template_as_native_obj=True.",
        )


@rule("processes-per-host-missing", N, SEED)
def processes_per_host_missing(job: Job, _: Catalogue) -> Iterator[Finding]:
    """SMP v1 without processes_per_host, which its page requires."""
    mpi = job.section("mpi") or {}
    if job.smp1 and job.enabled("mpi") and not mpi.get("processes_per_host"):
        have = job.instance.gpus if job.instance else 0
        yield finding(
            PATH,
            None,
            "AWS's page requires it; the container counts the GPUs instead.",
            f"Set it to {have or 'the number of GPUs'}.",
        )


@rule("degree-over-world", E, "sagemaker 2.199.0, smd_model_parallel_general.rst")
def degree_over_world(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A degree of SMP v1 above the number of processes."""
    if not (job.smp1 and job.launched and job.world_size):
        return
    names = ("tensor_parallel_degree", "sharded_data_parallel_degree")
    for name, value in [
        (_pipeline_name(job), pipeline_degree(job)),
        *((name, degree(job, name)) for name in names),
    ]:
        if value > job.world_size:
            yield finding(
                f"{SMP_PATH}.{name}",
                value,
                f"{job.hosts} hosts x {job.processes_per_host} processes are {job.world_size}.",
                f"Set it to {job.world_size} or less, or add hosts.",
            )


@rule("world-not-divisible", E, "sagemaker 2.199.0, smd_model_parallel_general.rst: 2 x 4 = 8")
def world_not_divisible(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Processes that do not divide into whole replicas of the model."""
    if not (job.smp1 and job.launched and job.world_size):
        return
    replica = pipeline_degree(job) * degree(job, "tensor_parallel_degree")
    if max(pipeline_degree(job), degree(job, "tensor_parallel_degree")) > job.world_size:
        return  # degree-over-world says it
    if job.world_size % replica:
        yield finding(
            f"{SMP_PATH}.{_pipeline_name(job)}",
            pipeline_degree(job),
            f"One replica takes {replica} processes, and {job.world_size} is no multiple of it.",
            "Choose degrees whose product divides the number of processes.",
        )
        return
    shards = degree(job, "sharded_data_parallel_degree")
    if shards <= job.world_size and (job.world_size // replica) % shards:
        yield finding(
            f"{SMP_PATH}.sharded_data_parallel_degree",
            shards,
            f"{job.world_size // replica} replicas do not divide into groups of {shards}.",
            "Choose a divisor.",
            W,
        )


@rule("batch-split", E, "the global batch is the batch of each process times the number of processes")
def batch_split(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A declared global batch that the processes cannot share evenly."""
    batch = job.workload.global_batch
    if batch and job.world_size and job.on and batch % job.world_size:
        near = batch - batch % job.world_size or job.world_size
        yield finding(
            "workload.global_batch",
            batch,
            f"{job.world_size} processes cannot share it evenly.",
            f"Use {near} or {near + job.world_size}.",
        )


@rule("learning-rate-warmup", N, "SageMaker developer guide, SMDDP tips; Goyal et al. 2017, sections 2 and 3")
def learning_rate_warmup(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Several hosts: scale the batch and the learning rate with them, and warm up."""
    names = " ".join(job.get("hyperparameters", {})).lower().replace("-", "").replace("_", "")
    if job.hosts > 1 and job.on and job.world_size > 1 and "warmup" not in names:
        yield finding(
            "hyperparameters",
            sorted(job.get("hyperparameters", {})),
            f"{job.world_size} processes multiply the global batch; the learning rate should follow.",
            f"Multiply the rate by {job.world_size} over the first epochs (airflow_smd.domain.scaling).",
        )


def _asked_and_there(job: Job) -> tuple[int, int]:
    if not job.enabled("mpi") or not job.instance:
        return 0, 0
    asked = whole_number((job.section("mpi") or {}).get("processes_per_host")) or 0
    return asked, job.instance.gpus or job.instance.neuron_cores


def _pipeline_name(job: Job) -> str:
    old = "partitions" in job.smp_parameters and "pipeline_parallel_degree" not in job.smp_parameters
    return "partitions" if old else "pipeline_parallel_degree"
