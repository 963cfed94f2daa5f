"""Parameters of the model parallelism library v1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Job, whole_number
from airflow_smd.domain.distribution.rules.base import E, Finding, N, W, finding, rule

SEED = "SageMaker developer guide, launch a model-parallel job"
DOCS = "sagemaker 2.199.0, smd_model_parallel_general.rst"
SDK = "sagemaker 2.257.7, validate_mp_config"
PATH = "distribution.smdistributed.modelparallel.parameters"
DEGREES = ("pipeline_parallel_degree", "partitions", "tensor_parallel_degree", "sharded_data_parallel_degree")


def pipeline_degree(job: Job) -> int:
    """Return over how many devices one replica's layers are spread, under its old or new name."""
    given = job.smp_parameters
    return whole_number(given.get("pipeline_parallel_degree", given.get("partitions"))) or 1


def degree(job: Job, name: str) -> int:
    """Return a degree, 1 where it is missing or no number."""
    return whole_number(job.smp_parameters.get(name)) or 1


@rule("smp-parameters", E, SEED)
def smp_parameters(job: Job, _: Catalogue) -> Iterator[Finding]:
    """The model-parallel library without a mapping of parameters."""
    section = job.section("modelparallel")
    if section is None or not section.get("enabled"):
        return
    given = section.get("parameters")
    if isinstance(given, str):
        yield finding(
            PATH,
            given,
            "This names a file, which a request cannot carry.",
            "Give the file's content; airflow-smd reads a JSON file that lies beside the job's file.",
        )
    elif given is not None and not isinstance(given, dict):
        yield finding(PATH, repr(given)[:200], "They must be a mapping.", "Write a mapping.")
    elif not given and not job.torchrun:
        yield finding(
            PATH,
            given,
            "They are required; without them mp_parameters is lost and the library does not start.",
            'Write at least "pipeline_parallel_degree" (TensorFlow: "partitions").',
        )


@rule("smp-degree-missing", E, SEED)
def smp_degree_missing(job: Job, _: Catalogue) -> Iterator[Finding]:
    """SMP v1 without the number of model partitions, and without another kind of sharding."""
    given = job.smp_parameters
    if job.smp1 and given and not any(name in given for name in DEGREES):
        wanted = "partitions" if job.framework == "tensorflow" else "pipeline_parallel_degree"
        yield finding(f"{PATH}.{wanted}", None, "It is required.", "Set it to the number of partitions.")


@rule("smp-degree-names", W, f"{SEED}: pipeline_parallel_degree replaces partitions since SMP 1.6")
def smp_degree_names(job: Job, _: Catalogue) -> Iterator[Finding]:
    """The degree under its old name, under both names, or under the other framework's name."""
    given = job.smp_parameters
    if not job.smp1:
        return
    old, new = given.get("partitions"), given.get("pipeline_parallel_degree")
    if old is not None and new is not None:
        yield finding(
            f"{PATH}.partitions",
            old,
            f"pipeline_parallel_degree={new} is the same setting under its new name.",
            "Keep one of them.",
            W if old == new else E,
        )
    elif new is not None and job.framework == "tensorflow":
        yield finding(
            f"{PATH}.pipeline_parallel_degree", new, "TensorFlow's library knows partitions.", "Rename it.", E
        )
    elif new is not None and _before_16(job):
        yield finding(
            f"{PATH}.pipeline_parallel_degree",
            new,
            f"PyTorch {job.framework_version} has SMP below 1.6, which knows partitions.",
            "Rename it to partitions.",
            E,
        )
    elif old is not None and job.framework == "pytorch" and job.framework_version and not _before_16(job):
        yield finding(
            f"{PATH}.partitions",
            old,
            f"PyTorch {job.framework_version} has SMP 1.6 or newer, which calls it pipeline_parallel_degree.",
            "Rename it to pipeline_parallel_degree.",
            N if old == 1 else None,
        )


@rule("smp-parameter-unknown", E, DOCS)
def smp_parameter_unknown(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A parameter that SMP v1 does not have, or has for the other framework only."""
    if not job.smp1:
        return
    known = facts.parameters("smp1")
    for name, value in job.smp_parameters.items():
        fact = known.get(name)
        if fact is None:
            meant = facts.suggestion(name, tuple(known))
            yield finding(
                f"{PATH}.{name}",
                brief(value),
                "SMP v1 has no such parameter.",
                f"Did you mean {meant}?" if meant else "Remove it.",
            )
        elif job.framework and job.framework not in fact.frameworks and name != "pipeline_parallel_degree":
            twin = {"ddp": "horovod", "horovod": "ddp"}.get(name)
            yield finding(
                f"{PATH}.{name}",
                brief(value),
                f"It is a parameter for {' and '.join(fact.frameworks)}, not for {job.framework}.",
                f"Use {twin}." if twin else "Remove it.",
            )


@rule("smp-parameter-value", E, f"{SDK}; {DOCS}")
def smp_parameter_value(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A value of the wrong type, out of range or not among the choices."""
    # SDK v2 never checks pipeline_parallel_degree (0 passes) and refuses placement strategies such as
    # DPT, which the library documents since 1.6; both are right here.
    library = "smp2" if job.smp2 else "smp1"
    if not job.enabled("modelparallel"):
        return
    for name, value in job.smp_parameters.items():
        fact = facts.parameters(library).get(name)
        choices = fact.choices if fact else ()
        if name == "placement_strategy" and job.framework == "tensorflow":
            choices = ("spread", "cluster")
        problem = _misfit(fact, choices, value) if fact else ""
        if problem:
            yield finding(f"{PATH}.{name}", brief(value), f"It must be {problem}.", f"Write {problem}.")


@rule("smp-default-partition", E, SDK)
def smp_default_partition(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Manual partitioning without a default partition below the number of partitions."""
    # SDK v2 compares with `partitions` only and dies of a KeyError beside pipeline_parallel_degree.
    given = job.smp_parameters
    if not job.smp1:
        return
    partition = whole_number(given.get("default_partition"))
    if given.get("auto_partition") is False and "default_partition" not in given:
        yield finding(
            f"{PATH}.default_partition", None, "It is required with auto_partition=False.", "Set it to 0."
        )
    elif partition is not None and partition >= pipeline_degree(job):
        yield finding(
            f"{PATH}.default_partition",
            partition,
            f"There are {pipeline_degree(job)} partitions, counted from 0.",
            "Set it below that number.",
        )


@rule("smp-ddp-settings", E, SDK)
def smp_ddp_settings(job: Job, _: Catalogue) -> Iterator[Finding]:
    """`ddp_port` or `ddp_dist_backend` without `ddp`, or `ddp` together with `horovod`."""
    given = job.smp_parameters
    for name in ("ddp_port", "ddp_dist_backend"):
        if name in given and "ddp" not in given:
            yield finding(f"{PATH}.{name}", brief(given[name]), "It needs ddp.", 'Add "ddp": True.')
    if given.get("ddp") and given.get("horovod"):
        yield finding(
            f"{PATH}.horovod",
            True,
            "It and ddp exclude each other.",
            "Keep ddp for PyTorch, horovod for TensorFlow.",
        )


@rule("tensor-parallel-needs-ddp", E, DOCS)
def tensor_parallel_needs_ddp(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Tensor parallelism of SMP v1 without `ddp`."""
    tensor = degree(job, "tensor_parallel_degree")
    if job.smp1 and tensor > 1 and not job.smp_parameters.get("ddp"):
        yield finding(f"{PATH}.tensor_parallel_degree", tensor, "Above 1 it needs ddp.", 'Add "ddp": True.')


@rule("smp-replicas-need-ddp", E, DOCS)
def smp_replicas_need_ddp(job: Job, _: Catalogue) -> Iterator[Finding]:
    """More processes than one replica needs, without data parallelism between the replicas."""
    one = pipeline_degree(job)
    if not (job.smp1 and job.enabled("mpi") and job.smp_parameters) or job.world_size <= one:
        return
    if degree(job, "tensor_parallel_degree") > 1 or not job.framework:
        return
    name = "horovod" if job.framework == "tensorflow" else "ddp"
    if not job.smp_parameters.get(name):
        yield finding(
            f"{PATH}.{name}",
            job.smp_parameters.get(name),
            f"{job.world_size} processes hold {job.world_size // one} replicas that must train together.",
            f'Add "{name}": True.',
        )


@rule("smp-microbatches", W, DOCS)
def smp_microbatches(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Microbatches that do not divide the batch, or settings that need more than one."""
    given = job.smp_parameters
    count = whole_number(given.get("microbatches")) or 1
    active = whole_number(given.get("active_microbatches"))
    if not job.smp1:
        return
    if job.workload.batch_per_gpu and job.workload.batch_per_gpu % count:
        yield finding(
            f"{PATH}.microbatches",
            count,
            f"They must divide the batch of {job.workload.batch_per_gpu}.",
            f"Choose a divisor of {job.workload.batch_per_gpu}.",
            E,
        )
    for name in ("batch_size", "batch-size", "train_batch_size", "per_device_train_batch_size"):
        batch = whole_number(job.get("hyperparameters", {}).get(name))
        if batch and batch % count and not job.workload.batch_per_gpu:
            yield finding(
                f"{PATH}.microbatches",
                count,
                f"They must divide the batch; hyperparameter {name} is {batch}.",
                f"Choose a divisor of {batch}.",
            )
    if active is not None and active > count:
        yield finding(
            f"{PATH}.active_microbatches",
            active,
            f"There are {count} microbatches.",
            "Lower it, or raise them.",
        )
    if given.get("offload_activations") is True and (count < 2 or active == 1):
        yield finding(
            f"{PATH}.offload_activations",
            True,
            "It helps only with microbatches and active_microbatches above 1.",
            "Raise microbatches.",
        )


def brief(value: Any) -> Any:
    """Return a value that a report can print."""
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)[:200]


def _before_16(job: Job) -> bool:
    version = job.framework_version
    return bool(version) and job.framework == "pytorch" and facts.version_key(version) < (1, 8, 1)


def _misfit(fact: facts.Parameter, choices: tuple[str, ...], value: Any) -> str:
    """Return what the value must be, or nothing if it fits."""
    match fact.kind:
        case "bool":
            return "" if isinstance(value, bool) else "True or False, without quotes"
        case "choice":
            return "" if value in choices else f"one of {', '.join(choices)}"
        case "str":
            return "" if isinstance(value, str) else "a string"
    whole = fact.kind == "int"
    wanted = "a whole number" if whole else "a number"
    if fact.minimum is not None and fact.maximum is not None:
        wanted += f" from {fact.minimum:g} to {fact.maximum:g}"
    elif fact.minimum is not None:
        wanted += f" of at least {fact.minimum:g}"
    fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if fits and (fact.minimum is None or value >= fact.minimum):
        return "" if fact.maximum is None or value <= fact.maximum else wanted
    return wanted
