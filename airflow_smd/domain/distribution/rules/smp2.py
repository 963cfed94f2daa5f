"""Parameters of the model parallelism library v2."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Job, whole_number
from airflow_smd.domain.distribution.rules.base import E, Finding, W, finding, rule
from airflow_smd.domain.distribution.rules.smp1 import PATH, brief

REFERENCE = "SageMaker developer guide, SMP v2 reference"
DEGREES = ("tensor_parallel_degree", "context_parallel_degree", "expert_parallel_degree")


@rule("smp2-parameter-unknown", E, REFERENCE)
def smp2_parameter_unknown(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A parameter that SMP v2 does not have."""
    known = facts.parameters("smp2")
    for name, value in job.smp_parameters.items() if job.smp2 else ():
        if name not in known and name not in facts.parameters("smp1"):
            meant = facts.suggestion(name, tuple(known))
            yield finding(
                f"{PATH}.{name}",
                brief(value),
                f"SMP v2 has {', '.join(known)}.",
                f"Did you mean {meant}?" if meant else "Remove it.",
            )


@rule("smp2-degree-range", E, REFERENCE)
def smp2_degree_range(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A degree above the number of processes, or a context degree above the shard degree."""
    if not (job.smp2 and job.world_size):
        return
    given = job.smp_parameters
    for name in ("hybrid_shard_degree", *DEGREES):
        value = whole_number(given.get(name))
        if value is not None and value > job.world_size:
            yield finding(
                f"{PATH}.{name}",
                value,
                f"There are {job.hosts} x {job.processes_per_host} = {job.world_size} processes.",
                f"Set it to {job.world_size} or less.",
            )
    shard = whole_number(given.get("hybrid_shard_degree"))
    context = whole_number(given.get("context_parallel_degree"))
    if shard and context and context > shard:
        yield finding(
            f"{PATH}.context_parallel_degree",
            context,
            f"hybrid_shard_degree is {shard}.",
            "Keep it within that.",
        )


@rule(
    "smp2-degree-divides", E, "groups of equal size must fill the world; hybrid_shard_degree is our inference"
)
def smp2_degree_divides(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A degree that does not divide the number of processes."""
    if not (job.smp2 and job.world_size):
        return
    for name in ("hybrid_shard_degree", *DEGREES):
        value = whole_number(job.smp_parameters.get(name))
        if value and value <= job.world_size and job.world_size % value:
            divisors = [n for n in range(1, job.world_size + 1) if job.world_size % n == 0]
            yield finding(
                f"{PATH}.{name}",
                value,
                f"{job.world_size} processes do not divide into groups of {value}.",
                f"Use one of {', '.join(map(str, divisors))}.",
                W if name == "hybrid_shard_degree" else None,
            )


@rule("smp2-horizon", W, REFERENCE)
def smp2_horizon(job: Job, _: Catalogue) -> Iterator[Finding]:
    """`activation_loading_horizon` without activation offloading, which ignores it."""
    given = job.smp_parameters
    if job.smp2 and "activation_loading_horizon" in given and not given.get("sm_activation_offloading"):
        yield finding(
            f"{PATH}.activation_loading_horizon",
            brief(given["activation_loading_horizon"]),
            "It counts only with sm_activation_offloading.",
            'Add "sm_activation_offloading": True, or remove it.',
        )
