"""SageMaker Training Compiler: what it compiles, and on what."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_smd.domain.distribution.facts import version_key
from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Form, Job
from airflow_smd.domain.distribution.rules.base import E, Finding, finding, rule

SDK = "sagemaker 2.257.7, TrainingCompilerConfig.validate"
FAMILIES = ("p3", "p3dn", "g4dn", "p4d", "g5")
VERSIONS = {"PyTorch": ((1, 12), (1, 13)), "HuggingFace": ((1, 9), (1, 11)), "TensorFlow": ((2, 9), (2, 11))}
"""Oldest and newest framework version with a compiler image, by estimator."""
XLA_SINCE = {"PyTorch": (1, 12), "HuggingFace": (1, 11)}
"""From here several hosts need pytorchxla."""


@rule("xla-needs-compiler", E, SDK)
def xla_needs_compiler(job: Job, _: Catalogue) -> Iterator[Finding]:
    """`pytorchxla` without SageMaker Training Compiler, or with TensorFlow."""
    if job.enabled("pytorchxla") and job.framework == "tensorflow":
        yield finding("distribution.pytorchxla", True, "TensorFlow has no PyTorch/XLA.", "Remove it.")
    elif "pytorchxla" in job.distribution and not job.get("compiler_config") and job.form is not Form.REQUEST:
        yield finding(
            "distribution.pytorchxla",
            True,
            "PyTorch/XLA runs with SageMaker Training Compiler only.",
            "Set compiler_config, or use torch_distributed.",
        )


@rule("compiler-cluster", E, SDK)
def compiler_cluster(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Training Compiler with smdistributed, on instance groups, or on a type that it does not know."""
    if not job.get("compiler_config") or job.form is Form.REQUEST:
        return
    if "smdistributed" in job.distribution:
        yield finding("compiler_config", True, "It does not run with smdistributed.", "Remove one.")
    if job.get("instance_groups"):
        yield finding("compiler_config", True, "It runs on one kind of instance.", "Use instance_type.")
    elif job.instance and job.instance.family not in FAMILIES:
        yield finding(
            "instance_type",
            job.instance_type,
            f"It compiles for {', '.join(FAMILIES)}.",
            "Use ml.p3.16xlarge.",
        )
    if job.image_uri and job.estimator != "TensorFlow":
        yield finding("image_uri", job.image_uri, "It has images of its own.", "Give versions instead.")


@rule("compiler-version", E, SDK)
def compiler_version(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Training Compiler on a framework version that it does not compile."""
    limits = VERSIONS.get(job.estimator)
    if not job.get("compiler_config") or job.form is Form.REQUEST or not limits or not job.framework_version:
        return
    oldest, newest = limits
    if job.framework == "tensorflow" and job.estimator == "HuggingFace":
        return  # its images alone decide
    if not oldest <= version_key(job.framework_version)[:2] <= newest:
        span = " to ".join(".".join(map(str, version)) for version in limits)
        yield finding(
            "compiler_config", job.framework_version, f"It compiles {span}.", "Use one of these versions."
        )


@rule("compiler-strategy", E, SDK)
def compiler_strategy(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Training Compiler over several hosts or with a strategy, but not through pytorchxla."""
    since = XLA_SINCE.get(job.estimator)
    if not job.get("compiler_config") or job.form is Form.REQUEST:
        return
    if job.enabled("multi_worker_mirrored_strategy"):
        yield finding(
            "distribution.multi_worker_mirrored_strategy", True, "It does not run with it.", "Remove one."
        )
    if since is None or job.framework != "pytorch" or not job.framework_version:
        return
    new = version_key(job.framework_version) >= since
    strategy_lacks_xla = bool(job.distribution) and "pytorchxla" not in job.distribution
    if new and (strategy_lacks_xla or (not job.distribution and job.hosts > 1)):
        yield finding(
            "distribution",
            sorted(job.distribution),
            f"PyTorch {job.framework_version} is compiled for pytorchxla only.",
            'Use distribution={"pytorchxla": {"enabled": True}}.',
        )
    elif not new and job.enabled("pytorchxla"):
        yield finding("distribution.pytorchxla", True, "This version has no PyTorch/XLA.", "Use a newer one.")
