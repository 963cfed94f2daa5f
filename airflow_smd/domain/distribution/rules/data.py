"""Storage and network: what reads the data, and what the hosts may say to each other."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_smd.domain.distribution import channels
from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Form, Job
from airflow_smd.domain.distribution.rules.base import E, Finding, N, W, finding, rule
from airflow_smd.domain.instances import find

VPC = "SageMaker developer guide, train-vpc.md"


@rule("vpc-pair", E, "sagemaker 2.257.7, EstimatorBase; CreateTrainingJob, VpcConfig")
def vpc_pair(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Subnets without security groups, or the other way round."""
    pair = {name: job.get(name) for name in ("subnets", "security_group_ids")}
    for name, value in pair.items():
        other = next(key for key in pair if key != name)
        if value is None and pair[other] is not None:
            yield finding(name, None, f"It is required beside {other}.", f"Set {name}.")


@rule("vpc-rules", N, VPC)
def vpc_rules(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Several hosts in a VPC: the security group must let its own members in and out."""
    if job.get("subnets") and job.hosts > 1:
        yield finding(
            "security_group_ids",
            job.get("security_group_ids"),
            "Members of the group must reach each other on all ports (EFA: in and out); each host takes two"
            " addresses; S3 needs an endpoint.",
            "Check it with the plugin's preflight.",
        )


@rule("file-system-needs-vpc", E, "CreateTrainingJob, FileSystemDataSource")
def file_system_needs_vpc(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A channel on FSx or EFS without a VPC to reach it."""
    if job.get("subnets") or (job.form is Form.REQUEST and job.request.get("VpcConfig")):
        return
    found, _problems = channels.channels(job)
    for channel in found:
        source = channel.get("DataSource")
        if isinstance(source, dict) and "FileSystemDataSource" in source:
            yield finding(
                "subnets",
                None,
                f"Channel {channel.get('ChannelName')} is on a file system, which only a VPC reaches.",
                "Set subnets and security_group_ids of the file system.",
            )


@rule("traffic-encryption", W, "SageMaker developer guide, train-encrypt.md: longer training")
def traffic_encryption(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Encryption between hosts that exchange gradients."""
    if job.get("encrypt_inter_container_traffic") and job.hosts > 1 and job.on:
        yield finding(
            "encrypt_inter_container_traffic",
            True,
            "It slows every AllReduce down, and EFA most.",
            "Leave it out unless a rule of yours demands it.",
        )


@rule("volume-size-ignored", W, "CreateTrainingJob, ResourceConfig: local storage is used instead")
def volume_size_ignored(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A volume size for a type that uses its own disks."""
    size = job.get("volume_size")
    if size is not None and job.instance and job.instance.nvme:
        yield finding(
            "volume_size",
            size,
            f"{job.instance_type} has {job.instance.nvme_gb} GB of its own, which are used instead.",
            "Leave it out.",
            N if job.form is Form.REQUEST else None,  # the API requires the field
        )


@rule(
    "volume-key-on-local-disks",
    E,
    "CreateTrainingJob, ResourceConfig: not with local storage; the SDK passes it",
)
def volume_key_on_local_disks(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A KMS key for the volume of a type with disks of its own."""
    local = [group.instance_type for group in job.groups if (row := find(group.instance_type)) and row.nvme]
    if job.get("volume_kms_key") and local:
        yield finding(
            "volume_kms_key",
            job.get("volume_kms_key"),
            f"{', '.join(local)} encrypts its local disks itself; AWS refuses a key.",
            "Remove it.",
        )


@rule("file-system-throughput", W, "SageMaker developer guide, SMDDP tips: 100 GB in 30 s need about 3 GB/s")
def file_system_throughput(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A file system slower than the data set divided by the epoch."""
    load = job.workload
    if not (load.dataset_gb and load.epoch_seconds and load.file_system_mbps):
        return
    needed = load.dataset_gb * 1000 / load.epoch_seconds
    if needed > load.file_system_mbps:
        yield finding(
            "workload.file_system_mbps",
            load.file_system_mbps,
            f"{load.dataset_gb:g} GB in {load.epoch_seconds:g} s need {needed:.0f} MB/s.",
            "Size it with airflow-smd size.",
        )


@rule("checkpoint-local-path", W, "sagemaker 2.257.7 leaves it out without checkpoint_s3_uri")
def checkpoint_local_path(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A local path of checkpoints that are not kept anywhere."""
    if job.get("checkpoint_local_path") and not job.get("checkpoint_s3_uri"):
        yield finding(
            "checkpoint_local_path",
            job.get("checkpoint_local_path"),
            "Without checkpoint_s3_uri nothing is kept.",
            "Set checkpoint_s3_uri.",
        )
