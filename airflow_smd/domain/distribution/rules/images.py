"""Images, frameworks and the versions that a strategy runs on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.images import Catalogue, dlc_uri
from airflow_smd.domain.distribution.job import Form, Job, image_framework
from airflow_smd.domain.distribution.rules.base import E, Finding, N, W, finding, rule

SDK = "sagemaker 2.257.7, fw_utils"
BLOCKED = "2.0.1-gpu-py310-cu121"


@rule("smddp-version", E, f"{SDK}; SMDDP release notes: none for PyTorch above 2.3 and TensorFlow 2.12")
def smddp_version(job: Job, catalogue: Catalogue) -> Iterator[Finding]:
    """A framework version without SMDDP in its image; the nearest with it is named."""
    # The list is closed: AWS releases no SMDDP for newer versions, so newer is refused and not warned of.
    if not job.smddp or job.image_uri or not job.framework_version:
        return
    known = facts.versions(job.framework, "smddp")
    if job.framework_version in known:
        return
    near = facts.nearest(job.framework_version, _full(known))
    by_image = facts.versions(job.framework, "smddp-by-image")
    uri = dlc_uri(job, catalogue, job.framework_version) if job.framework_version in by_image else ""
    yield finding(
        _version_field(job),
        job.framework_version,
        f"SMDDP comes with {job.framework} {', '.join(_full(known))}.",
        f"Use {near}, the nearest."
        + (f" SMDDP is in that version's own image, too: image_uri={uri}." if uri else "")
        + (" Or torch_distributed, which newer versions run." if job.framework == "pytorch" else ""),
    )


@rule("smddp-image", W, "SMDDP release notes")
def smddp_image(job: Job, _: Catalogue) -> Iterator[Finding]:
    """SMDDP with an AWS image of a version that it is not in."""
    framework, version = image_framework(job.image_uri)
    if not job.smddp or not version:
        return
    known = facts.versions(framework, "smddp") + facts.versions(framework, "smddp-by-image")
    if version not in known:
        near = facts.nearest(version, _full(known))
        yield finding(
            "image_uri", job.image_uri, f"AWS's {framework} {version} image has no SMDDP.", f"Use {near}."
        )


@rule("torchrun-version", E, SDK)
def torchrun_version(job: Job, catalogue: Catalogue) -> Iterator[Finding]:
    """A PyTorch version that the SDK does not start with torch_distributed; newer ones are a warning."""
    version = job.framework_version
    if not job.torchrun or job.image_uri or job.framework != "pytorch" or not version:
        return
    strategy = "torchrun-trainium" if job.instance_type.startswith("ml.trn") else "torchrun"
    known = facts.versions("pytorch", strategy)
    if version in known:
        return
    newer = facts.version_key(version) > facts.version_key(known[-1]) and strategy == "torchrun"
    uri = dlc_uri(job, catalogue, version)
    yield finding(
        _version_field(job),
        version,
        f"torch_distributed is known to run on PyTorch {', '.join(known)}.",
        f"Use {facts.nearest(version, _full(known))}, the nearest"
        + (f", or give image_uri={uri}." if uri else ", or give image_uri."),
        W if newer else None,
    )


@rule(
    "smp1-version", E, "SageMaker developer guide, model-parallel.md (archived); sagemaker-python-sdk #4241"
)
def smp1_version(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A framework version whose image has no SMP v1."""
    if not job.smp1 or job.image_uri or not job.framework_version:
        return
    known = facts.versions(job.framework, "smp1")
    if job.framework_version in known:
        return
    newer = bool(known) and facts.version_key(job.framework_version) > facts.version_key(known[-1])
    yield finding(
        _version_field(job),
        job.framework_version,
        f"SMP v1 comes with {job.framework} {', '.join(known)}.",
        f"Use {facts.nearest(job.framework_version, known)}, the nearest"
        + (", or SMP v2 through torch_distributed." if newer and job.framework == "pytorch" else "."),
        None if newer and job.framework == "pytorch" else W,
    )


@rule("python-2", E, SDK)
def python_2(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Python 2 with a strategy that needs Python 3."""
    python = job.get("py_version", "")
    if python and "py3" not in python and (job.smddp or job.torchrun) and not job.image_uri:
        yield finding("py_version", python, "The strategy needs Python 3.", "Use the image's py3 version.")


@rule("tensorflow-legacy", E, "sagemaker 2.257.7, TensorFlow: legacy mode only")
def tensorflow_legacy(job: Job, _: Catalogue) -> Iterator[Finding]:
    """TensorFlow 1.10 and older, whose containers do not run scripts."""
    version = job.get("framework_version")
    if (
        job.estimator == "TensorFlow"
        and version
        and not job.image_uri
        and facts.version_key(version) <= (1, 10, 0)
    ):
        yield finding(
            "framework_version",
            version,
            "Its container knows legacy mode only.",
            "Use 1.15.5 or newer, or image_uri.",
        )


@rule("blocked-image", E, "sagemaker 2.257.7, UNSUPPORTED_DLC_IMAGE_FOR_SM_PARALLELISM")
def blocked_image(job: Job, _: Catalogue) -> Iterator[Finding]:
    """The PyTorch 2.0.1 image with CUDA 12.1, which has no smdistributed for MPI."""
    if BLOCKED in job.image_uri and "smdistributed" in job.distribution and not job.torchrun:
        yield finding(
            "image_uri",
            job.image_uri,
            "Its CUDA is newer than the library.",
            "Use the cu118 image, or torch_distributed.",
        )


@rule("image-framework", E, "the image's name")
def image_framework_differs(job: Job, _: Catalogue) -> Iterator[Finding]:
    """An image of one framework on the class of the other."""
    found, _version = image_framework(job.image_uri)
    wanted = {"PyTorch": "pytorch", "TensorFlow": "tensorflow"}.get(job.estimator)
    if found and wanted and found != wanted and job.form is Form.ESTIMATOR:
        yield finding(
            "image_uri",
            job.image_uri,
            f"It is an image of {found}, and {job.estimator} writes the protocol of {wanted}.",
            f"Use {'PyTorch' if found == 'pytorch' else 'TensorFlow'}(...).",
        )


@rule("own-image", N, "sagemaker-training 5.1.4: without the framework's toolkit only MPI is started")
def own_image(job: Job, _: Catalogue) -> Iterator[Finding]:
    """An image of one's own under SMDDP or torchrun, which only the framework's toolkit starts."""
    own = not re.search(r"/(?:[a-z-]+-training|smdistributed-modelparallel)", job.image_uri)
    if job.image_uri and own and (job.smddp or job.torchrun):
        yield finding(
            "image_uri",
            job.image_uri,
            "With sagemaker-training alone in it, the image ignores SMDDP and torch_distributed.",
            "Build it FROM an AWS image, or install sagemaker-pytorch-training and set "
            "SAGEMAKER_TRAINING_MODULE.",
        )


@rule("archived-library", N, "model-parallel.md: SMP v1 is archived; SMDDP ends with PyTorch 2.4")
def archived_library(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A library that AWS no longer develops: it launches, but gets no newer frameworks."""
    if job.smp1 or (job.smddp and not job.torchrun):
        yield finding(
            "distribution.smdistributed",
            "SMP v1" if job.smp1 else "SMDDP",
            "AWS keeps the images but releases no newer version.",
            "Plan for SMP v2 through torch_distributed."
            if job.smp1
            else "Plan for torch_distributed with NCCL.",
        )


def _full(versions: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(version for version in versions if version.count(".") == 2) or versions


def _version_field(job: Job) -> str:
    return f"{job.framework}_version" if job.estimator == "HuggingFace" else "framework_version"
