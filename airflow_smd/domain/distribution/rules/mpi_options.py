"""`custom_mpi_options`: what breaks the launch, what is lost, what is there already."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Job
from airflow_smd.domain.distribution.rules.base import E, Finding, N, W, finding, rule

TOOLKIT = "sagemaker-training 5.1.4"
TAKEN = frozenset(
    {
        "btl_tcp_if_include",
        "oob_tcp_if_include",
        "plm_rsh_no_tree_spawn",
        "pml",
        "btl",
        "orte_abort_on_non_zero_status",
        "btl_vader_single_copy_mechanism",
    }
)
"""MCA parameters that the container's own command line has; mpirun refuses each second one."""
TAKEN_BY_SMDDP = frozenset({"plm_rsh_num_concurrent"})
OWN_OPTION = "--NCCL_DEBUG"
EFA_FLAGS = ("FI_PROVIDER=efa", "FI_EFA_USE_DEVICE_RDMA=1")


def options(job: Job) -> Iterator[tuple[str, str]]:
    """Yield each strategy's options with their field."""
    places = {
        "mpi": "distribution.mpi",
        "dataparallel": "distribution.smdistributed.dataparallel",
        "pytorchddp": "distribution.pytorchddp",
    }
    for name, path in places.items():
        text = (job.section(name) or {}).get("custom_mpi_options")
        if isinstance(text, str) and text:
            yield f"{path}.custom_mpi_options", text


@rule("mpi-option-help", E, f"{TOOLKIT}: argparse prints its help and exits 0, so the job is Completed")
def mpi_option_help(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A token that begins with `-h`, which ends the job as Completed without training."""
    for field, text in options(job):
        for token in text.split():
            word = token.partition("=")[0]
            if re.match(r"-h", token) or word in ("--h", "--he", "--hel", "--help"):
                yield finding(
                    field,
                    token,
                    "The container reads -h..., prints a help text and ends as Completed without training.",
                    "Remove it; the hosts are given by SageMaker.",
                )


@rule("mpi-option-repeated", E, "SageMaker developer guide: listed multiple times; mpirun ends with 1")
def mpi_option_repeated(job: Job, _: Catalogue) -> Iterator[Finding]:
    """An MCA parameter that the container sets too, or that is given twice."""
    for field, text in options(job):
        tokens = text.split()
        names = [after for token, after in pairwise(tokens) if re.fullmatch("--?g?mca", token)]
        taken = TAKEN | (TAKEN_BY_SMDDP if "dataparallel" in field or "pytorchddp" in field else frozenset())
        for name in dict.fromkeys(names):
            if name in taken or names.count(name) > 1:
                yield finding(
                    field,
                    f"--mca {name}",
                    "mpirun takes each MCA parameter once, and the container sets this one."
                    if name in taken
                    else "mpirun takes each MCA parameter once.",
                    "Remove it.",
                )


@rule("mpi-option-quotes", E, f"{TOOLKIT} splits at blanks only")
def mpi_option_quotes(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Quotes, which do not hold a value with blanks together."""
    for field, text in options(job):
        if "'" in text or '"' in text:
            yield finding(
                field,
                text[:200],
                "Quotes are not honoured: the text is split at every blank.",
                "Set such a variable in environment instead.",
            )


@rule("mpi-option-abbreviated", W, f"{TOOLKIT}: argparse completes it to its own option")
def mpi_option_abbreviated(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A beginning of `--NCCL_DEBUG`, which the container eats."""
    for field, text in options(job):
        for token in text.split():
            word = token.partition("=")[0]
            if word.startswith("--N") and OWN_OPTION.startswith(word) and word != OWN_OPTION:
                yield finding(
                    field,
                    token,
                    "The container takes it for --NCCL_DEBUG and its value.",
                    "Write -x NAME=VALUE.",
                )


@rule("mpi-option-placement", W, "sagemaker-training-toolkit #70")
def mpi_option_placement(job: Job, _: Catalogue) -> Iterator[Finding]:
    """`-map-by` and `-bind-to`, which do not override the container's; or hosts of one's own."""
    for field, text in options(job):
        for token in text.split():
            if token.lstrip("-") in ("map-by", "bind-to", "hostfile", "host", "np", "machinefile") and (
                token.startswith("-") and not token.startswith("-h")
            ):
                yield finding(
                    field,
                    token,
                    "The container gives this option too; mpirun does not let yours win.",
                    "Remove it.",
                )


@rule("mpi-option-length", E, "CreateTrainingJob: a hyperparameter has at most 2500 characters")
def mpi_option_length(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Options longer than a hyperparameter may be."""
    for field, text in options(job):
        if len(text) > 2498:
            yield finding(
                field, f"{len(text)} characters", "At most 2498 fit.", "Move variables to environment."
            )


@rule("efa-flags-harmful", E, "aws/deep-learning-containers #2675: NCCL hangs on p3.16xlarge")
def efa_flags_harmful(job: Job, _: Catalogue) -> Iterator[Finding]:
    """`FI_PROVIDER=efa` on a type without EFA, where NCCL hangs."""
    if job.instance is None or job.instance.efa:
        return
    for field, text in options(job):
        if "FI_PROVIDER=efa" in text.split():
            yield finding(
                field,
                "FI_PROVIDER=efa",
                f"{job.instance_type} has no EFA; NCCL hangs.",
                "Remove the EFA flags.",
            )
    if job.get("environment", {}).get("FI_PROVIDER") == "efa":
        yield finding(
            "environment.FI_PROVIDER", "efa", f"{job.instance_type} has no EFA; NCCL hangs.", "Remove it."
        )


@rule("efa-flags-redundant", N, f"{TOOLKIT} sets them; RDMAV_FORK_SAFE only under SMDDP and torchrun")
def efa_flags_redundant(job: Job, _: Catalogue) -> Iterator[Finding]:
    """EFA flags that the container sets for this type already."""
    if job.instance_type not in facts.types("toolkit-efa"):
        return
    for field, text in options(job):
        there = [flag for flag in EFA_FLAGS if flag in text.split()]
        if there:
            yield finding(
                field,
                there,
                f"The container sets them for {job.instance_type}; harmless.",
                "Keep RDMAV_FORK_SAFE=1 alone for SMP v1." if job.smp1 else "Leave them out.",
            )


@rule("efa-flags-missing", W, f"{TOOLKIT} does not know the type: NCCL would use TCP without a word")
def efa_flags_missing(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Several hosts of a type with EFA that the container does not know."""
    instance = job.instance
    if (
        instance is None
        or not instance.efa
        or instance.type in facts.types("toolkit-efa")
        or job.hosts < 2
        or not job.on
    ):
        return
    if not (instance.gpus or instance.neuron_cores):
        return
    said = " ".join(text for _field, text in options(job)) + " ".join(job.get("environment", {}))
    if "FI_PROVIDER" in said:
        return
    wanted = {"FI_PROVIDER": "efa", "RDMAV_FORK_SAFE": "1"}
    if instance.rdma:
        wanted["FI_EFA_USE_DEVICE_RDMA"] = "1"
    yield finding(
        "environment",
        sorted(job.get("environment", {})),
        f"The container does not switch EFA on for {instance.type}, which may fall back to TCP.",
        f"Add to environment: {', '.join(f'{key}={value}' for key, value in wanted.items())}.",
        None if instance.rdma else N,  # without RDMA the loss is small
    )
