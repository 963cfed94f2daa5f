"""The instances: which strategies run on which types, and heterogeneous groups."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_smd.domain.distribution import channels, facts
from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Form, Job
from airflow_smd.domain.distribution.rules.base import E, Finding, N, W, finding, rule
from airflow_smd.domain.instances import find, instances

GUIDE = "SageMaker developer guide"
SDK = "sagemaker 2.257.7, validate_distribution"
SPELLING = r"ml\.[a-z][a-z0-9-]*\.(?:nano|micro|small|medium|large|\d*xlarge|metal(?:-\d+xl)?)"
CUDA_12 = ("p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200")
"""Families whose images have a CUDA newer than the MPI-launched libraries were built for."""


@rule("unknown-instance-type", W, "domain/tables/instances.json")
def unknown_instance_type(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A type that the table of instances does not have: a typo, or newer than it."""
    for group in job.groups:
        if group.instance_type.startswith("local"):
            yield finding(
                "instance_type",
                group.instance_type,
                "The SDK's local mode is no job of AWS.",
                "Use the sandbox.",
                E,
            )
        elif not re.fullmatch(SPELLING, group.instance_type):
            meant = facts.suggestion(group.instance_type, tuple(instances()))
            yield finding(
                "instance_type",
                group.instance_type,
                "No instance type is spelt like this; they are spelt as ml.p4d.24xlarge.",
                f"Did you mean {meant}?" if meant else "Correct it.",
                E,
            )
        elif find(group.instance_type) is None:
            meant = facts.suggestion(group.instance_type, tuple(instances()))
            yield finding(
                "instance_type",
                group.instance_type,
                "Nothing is known of it, so its GPUs and network are not checked.",
                f"If it is not newer than this package, did you mean {meant or 'another one'}?",
            )


@rule("smddp-instance", E, f"{GUIDE}, SMDDP supported types; the SDK's own list is never used")
def smddp_instance(job: Job, _: Catalogue) -> Iterator[Finding]:
    """SMDDP on a type that it does not support; torchrun with the same settings runs there."""
    if not job.smddp or job.torchrun or not job.instance_type or job.instance_type in facts.types("smddp"):
        return
    gpus = job.instance.gpus if job.instance else 0
    if job.instance and not gpus:
        remedy = f"Choose one of {_listed('smddp')}."
    else:
        remedy = (
            'Use distribution={"torch_distributed": {"enabled": True}}: it starts '
            f"{f'{job.hosts} x {gpus} processes' if gpus else 'one process for each GPU'} "
            'with NCCL; in the script init_process_group("nccl") replaces "smddp".'
            if job.framework == "pytorch"
            else f"Use multi_worker_mirrored_strategy, or one of {_listed('smddp')}."
        )
    yield finding(
        "instance_type",
        job.instance_type,
        f"SMDDP's AllReduce runs on {_listed('smddp')}.",
        remedy,
        None if job.instance else W,
    )


@rule("smddp-single-host", W, f"{GUIDE}, SMDDP tips: use the library with multiple nodes")
def smddp_single_host(job: Job, _: Catalogue) -> Iterator[Finding]:
    """SMDDP on one host: allowed, but its AllReduce gains between hosts."""
    if job.smddp and job.hosts == 1 and job.instance_type in facts.types("smddp"):
        yield finding(
            "instance_count",
            1,
            "On one host NVLink does the work; the library gains with two or more.",
            "Use 2 hosts or more, or torch_distributed on one.",
        )


@rule("smp1-instance", E, f"{GUIDE}, model-parallel.md (archived)")
def smp1_instance(job: Job, _: Catalogue) -> Iterator[Finding]:
    """SMP v1 on a type without GPUs, or one that its documentation does not list."""
    if not job.smp1 or not job.instance_type or job.instance_type in facts.types("smp1"):
        return
    instance = job.instance
    newer = bool(instance and instance.family in CUDA_12)
    yield finding(
        "instance_type",
        job.instance_type,
        f"SMP v1 runs on {_listed('smp1')}.",
        "Use SMP v2: torch_distributed beside modelparallel, with PyTorch 2.0.1 or newer."
        if newer
        else "Choose one of them.",
        E if instance and (newer or not instance.gpus) else W,
    )


@rule("smp2-instance", E, f"{GUIDE}, model-parallel-v2: types with GPUs")
def smp2_instance(job: Job, _: Catalogue) -> Iterator[Finding]:
    """SMP v2 on a type without GPUs."""
    if job.smp2 and job.instance and not job.instance.gpus:
        yield finding(
            "instance_type", job.instance_type, "SMP v2 needs GPUs.", "Use ml.p4d.24xlarge or ml.p5.48xlarge."
        )


@rule("torchrun-instance", E, "sagemaker 2.257.7, validate_torch_distributed_distribution")
def torchrun_instance(job: Job, _: Catalogue) -> Iterator[Finding]:
    """torchrun with an AWS image on a type without GPUs or Neuron cores."""
    instance = job.instance
    if job.torchrun and instance and not (instance.gpus or instance.neuron_cores) and not job.image_uri:
        yield finding(
            "instance_type",
            job.instance_type,
            "torch_distributed is for GPUs and Trainium.",
            'Use "mpi" on CPUs, or a type with GPUs.',
        )


@rule("trainium-strategy", E, "sagemaker 2.257.7, validate_distribution_for_instance_type")
def trainium_strategy(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Anything but torch_distributed alone on Trainium."""
    if not job.instance_type.startswith("ml.trn") or not job.distribution:
        return
    others = [key for key in job.distribution if key != "torch_distributed"]
    if others:
        yield finding(
            f"distribution.{others[0]}",
            others,
            "Trainium runs torch_distributed alone.",
            'Use distribution={"torch_distributed": {"enabled": True}}.',
        )


@rule("group-and-type", E, "CreateTrainingJob takes one form; sagemaker-python-sdk #5555")
def group_and_type(job: Job, _: Catalogue) -> Iterator[Finding]:
    """`instance_groups` together with `instance_type` or `instance_count`."""
    if job.get("instance_groups") is not None:
        for name in ("instance_type", "instance_count"):
            if job.get(name) is not None:
                yield finding(name, job.get(name), "instance_groups says it already.", f"Remove {name}.")


@rule("group-name", E, SDK)
def group_name(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A heterogeneous cluster whose training group is not named exactly once and rightly."""
    field = "distribution.instance_groups"
    named = job.group_names
    have = tuple(group.name for group in job.groups if group.name)
    if job.form is Form.DISTRIBUTION or "distribution" not in job.arguments:
        return
    if named and not have:
        yield finding(field, list(named), "The estimator has no instance_groups.", "Add them, or remove it.")
    elif len(have) > 1 and len(named) != 1:
        yield finding(
            field, list(named), "The strategy runs on exactly one group.", f"Name one of {', '.join(have)}."
        )
    elif len(named) > len(have):
        yield finding(field, list(named), f"There are {len(have)} groups.", f"Name one of {', '.join(have)}.")
    for name in named:
        if have and name not in have:
            meant = facts.suggestion(name, have)
            yield finding(
                field,
                name,
                f"The groups are {', '.join(have)}.",
                f"Did you mean {meant}?" if meant else f"Name one of {', '.join(have)}.",
            )


@rule("group-without-strategy", E, "sagemaker 2.257.7, _distribution_configuration")
def group_without_strategy(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A training group without MPI or SMDDP; SMP v2 does not run on a group."""
    if not job.group_names or not job.groups:
        return
    started = job.enabled("mpi") or job.smddp or job.torchrun or job.enabled("pytorchddp")
    if job.smp2 or not started:
        yield finding(
            "distribution.instance_groups",
            list(job.group_names),
            "Groups go with mpi or smdistributed.dataparallel.",
            "Enable one of them, or use one kind of instance.",
        )


@rule("group-torchrun", W, f"{SDK} drops the group, and each group starts a torchrun of its own; not here")
def group_torchrun(job: Job, _: Catalogue) -> Iterator[Finding]:
    """torchrun on one group of a heterogeneous cluster."""
    dropped = job.torchrun or (job.estimator == "HuggingFace" and job.enabled("pytorchddp"))
    if dropped and not job.smp2 and job.group_names and len(job.groups) > 1:
        yield finding(
            "distribution.instance_groups",
            list(job.group_names),
            "AWS's own client drops the group beside torch_distributed. The request made here keeps it.",
            "Check that only the hosts of the group report ranks.",
        )


@rule("group-limit", E, "CreateTrainingJob: at most 5 instance groups")
def group_limit(job: Job, _: Catalogue) -> Iterator[Finding]:
    """More instance groups than the API takes, or two of one name."""
    names = [group.name for group in job.groups]
    if len(names) > 5:
        yield finding("instance_groups", len(names), "At most 5 are allowed.", "Merge some.")
    if len(set(names)) < len(names):
        yield finding("instance_groups", names, "Names must be unique.", "Rename one.")
    for group in job.groups:
        if group.name and group.hosts < 1:
            yield finding("instance_groups", group.hosts, "A group has at least one host.", "Set 1 or more.")


@rule("group-channels", E, "sagemaker-python-sdk #6089: some channels have instance groups while others not")
def group_channels(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Some channels assigned to instance groups and others not, or to an unknown group."""
    found, _problems = channels.channels(job)
    groups = {}
    for channel in found:
        source = channel.get("DataSource")
        inner = source.get("S3DataSource") if isinstance(source, dict) else None
        groups[str(channel.get("ChannelName"))] = (inner or {}).get("InstanceGroupNames")
    without = [name for name, assigned in groups.items() if not assigned]
    if without and len(without) < len(groups):
        yield finding(
            "fit", without, "All channels name their instance groups, or none.", "Name them for these too."
        )
    have = {group.name for group in job.groups}
    for name, assigned in groups.items():
        strangers = [one for one in assigned if one not in have] if isinstance(assigned, list) else []
        if strangers:
            yield finding(
                f"fit.{name}.instance_groups",
                repr(strangers)[:200],
                f"The groups are {sorted(have)}.",
                "Correct it.",
            )


@rule("mpi-current-host", N, "sagemaker-training-toolkit #158")
def mpi_current_host(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Under MPI every rank has the first host's SM_CURRENT_HOST."""
    if job.enabled("mpi") and not job.torchrun and job.hosts > 1:
        yield finding(
            "distribution.mpi",
            True,
            "SM_CURRENT_HOST is the first host's on every rank.",
            "Take the host from socket.gethostname().",
        )


def _listed(library: str) -> str:
    return ", ".join(facts.types(library))
