"""HyperPod recipes: what SDK v2 makes of `training_recipe`, without cloning the recipe's repository."""

from __future__ import annotations

from posixpath import basename

from airflow_smd.domain.distribution.images import Catalogue, ecr_host
from airflow_smd.domain.distribution.job import Job
from airflow_smd.domain.distribution.values import SMPv2, Trainium
from airflow_smd.errors import InvalidInput, Problem

GPU_IMAGE = ("smdistributed-modelparallel", "2.4.1-gpu-py311-cu121")
"""sagemaker 2.257.7, training_recipes.json, 2026-11-30."""


def with_recipe(job: Job, catalogue: Catalogue) -> Job:
    """Return the job that a recipe starts: its image, its launcher, and the file that the script reads.

    The script and the number of hosts are in the recipe's repository, which is not read here.
    """
    recipe = job.get("training_recipe")
    if not recipe:
        return job
    missing = [name for name in ("entry_point", "instance_count", "role") if not job.get(name)]
    image = job.image_uri or _image(job, catalogue)
    if not image:
        missing.append("image_uri")
    if missing:
        raise InvalidInput(
            [
                Problem(
                    rule="training-recipe",
                    field=name,
                    value=None,
                    message="A recipe names it in a repository that is not read here.",
                    remedy=f"Set {name}.",
                )
                for name in missing
            ]
        )
    gpus = job.instance.gpus if job.instance else 0
    distribution = SMPv2().distribution() if gpus else Trainium().distribution()
    if gpus:
        distribution["smdistributed"]["modelparallel"]["parameters"] = {"placement_strategy": "cluster"}
    return job.but(
        image_uri=image,
        distribution=distribution,
        hyperparameters={"config-path": ".", "config-name": basename(recipe)},
    )


def _image(job: Job, catalogue: Catalogue) -> str:
    entries = list(catalogue.images.get("pytorch-smp", {}).get("versions", {}).values())
    registries = entries[-1]["registries"] if entries else {}
    if not job.instance or not job.instance.gpus or job.region not in registries:
        return ""
    repository, tag = GPU_IMAGE
    return f"{ecr_host(registries[job.region], job.region)}/{repository}:{tag}"
