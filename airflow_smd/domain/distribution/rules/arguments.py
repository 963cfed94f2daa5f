"""The estimator's own arguments: what is missing, contradictory or of no effect."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Form, Job
from airflow_smd.domain.distribution.rules.base import E, Finding, N, finding, rule


@rule("required-argument", E, "sagemaker 2.257.7, estimator classes")
def required_argument(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A job without role, entry point, instance type or count."""
    if job.form is not Form.ESTIMATOR or job.get("training_recipe"):
        return
    wanted = ["role"]
    if job.get("instance_groups") is None:
        wanted += ["instance_type", "instance_count"]
    if job.estimator != "Estimator":
        wanted.append("entry_point")
    for name in wanted:
        if not job.get(name):
            yield finding(name, job.get(name), "Without it there is no training job.", f"Set {name}.")


@rule("instance-count", E, "CreateTrainingJob: at least one host")
def instance_count(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A count of hosts below one."""
    count = job.get("instance_count")
    if count is not None and count < 1:
        yield finding("instance_count", count, "At least one host must train.", "Set 1 or more.")


@rule("region-missing", E, "the bucket, the registry and the container need it")
def region_missing(job: Job, _: Catalogue) -> Iterator[Finding]:
    """An estimator's job without a region."""
    if job.form is Form.ESTIMATOR and not job.region and "role" in job.arguments:
        yield finding("region", None, "Buckets and images are regional.", "Set region, as us-west-2.")


@rule("role-arn", E, "CreateTrainingJob takes an ARN; only the SDK's session expands a name")
def role_arn(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A role by name instead of by ARN."""
    role = job.get("role")
    if role and job.form is Form.ESTIMATOR and not re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:role/.+", role):
        yield finding(
            "role",
            role,
            "It must be the ARN of an IAM role, arn:aws:iam::<account>:role/<name>.",
            "Write the whole ARN.",
        )


@rule("entry-point", E, "sagemaker 2.257.7, Framework and validate_torch_distributed_distribution")
def entry_point(job: Job, _: Catalogue) -> Iterator[Finding]:
    """An entry point that is on S3, or no Python file under torchrun."""
    script = job.get("entry_point", "")
    if script.startswith("s3://"):
        yield finding("entry_point", script, "It is a path inside the code.", "Put the S3 URI in source_dir.")
    elif script and job.torchrun and not script.endswith(".py"):
        yield finding("entry_point", script, "torchrun starts Python files only.", "Name a .py file.")


@rule("hugging-face-versions", E, "sagemaker 2.257.7, HuggingFace")
def hugging_face_versions(job: Job, _: Catalogue) -> Iterator[Finding]:
    """HuggingFace with both frameworks, with neither, or with short and full versions mixed."""
    if job.estimator != "HuggingFace" or job.image_uri:
        return
    tensorflow, pytorch = job.get("tensorflow_version"), job.get("pytorch_version")
    transformers = job.get("transformers_version")
    if tensorflow and pytorch:
        yield finding(
            "tensorflow_version",
            tensorflow,
            f"pytorch_version is {pytorch} as well; an image has one framework.",
            "Keep one.",
        )
    elif job.form is Form.ESTIMATOR and not (tensorflow or pytorch):
        yield finding("pytorch_version", None, "The image needs a framework.", "Set pytorch_version.")
    elif transformers and transformers.count(".") != str(tensorflow or pytorch).count("."):
        yield finding(
            "transformers_version",
            transformers,
            f"It and {tensorflow or pytorch} must both be full or both be short.",
            "Write both with three numbers.",
        )


@rule("without-effect", N, "sagemaker 2.257.7: used by the SDK itself, not in the request")
def without_effect(job: Job, _: Catalogue) -> Iterator[Finding]:
    """An argument that only the SDK's own session uses."""
    for name in job.arguments:
        fact = facts.arguments()[name]
        if not fact.field and name not in ("framework_version", "py_version"):
            yield finding(
                name,
                None,
                "It is not part of the request.",
                "Package the code before the task; the connection gives the session.",
            )


@rule("training-recipe", N, "sagemaker 2.257.7 clones the recipe's repository to find script and node count")
def training_recipe(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A recipe: only GPUs and Trainium, and its script and hosts must be given here."""
    recipe = job.get("training_recipe")
    if not recipe:
        return
    instance = job.instance
    if instance and not (instance.gpus or instance.neuron_cores):
        yield finding(
            "instance_type",
            job.instance_type,
            "Recipes do not run on CPU types.",
            "Choose a type with GPUs, as ml.p5.48xlarge.",
            E,
        )
    elif not (job.get("entry_point") and job.get("instance_count")):
        yield finding(
            "training_recipe",
            recipe,
            "The recipe's script and its number of nodes are in a repository that is not read here.",
            "To compile it, set entry_point, source_dir and instance_count.",
        )
