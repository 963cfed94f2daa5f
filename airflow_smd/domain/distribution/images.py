"""The container image of a job, from the SDK's own data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_smd.domain.distribution import facts
from airflow_smd.domain.distribution.job import Job
from airflow_smd.domain.distribution.shapes import Shape
from airflow_smd.errors import Problem

DNS_SUFFIXES: tuple[tuple[str, str], ...] = (
    ("cn-", "amazonaws.com.cn"),
    ("us-isob-", "sc2s.sgov.gov"),
    ("us-isof-", "csp.hci.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk"),
    ("us-iso-", "c2s.ic.gov"),
    ("eusc-", "amazonaws.eu"),
)
"""Region prefix to DNS suffix; botocore 1.44.8, partitions.json, 2026-11-30."""
_CUDA_TAGS: Mapping[str, str] = {
    "tensorflow-1.15-gpu-py37": "cu110-ubuntu18.04-v8",
    "tensorflow-1.15.4-gpu-py37": "cu110-ubuntu18.04",
    "tensorflow-1.15.5-gpu-py37": "cu110-ubuntu18.04",
    "tensorflow-2.3-gpu-py37": "cu110-ubuntu18.04-v3",
    "tensorflow-2.3.1-gpu-py37": "cu110-ubuntu18.04",
    "tensorflow-2.3.2-gpu-py37": "cu110-ubuntu18.04",
    "pytorch-1.6-gpu-py36": "cu110-ubuntu18.04-v3",
    "pytorch-1.6.0-gpu-py36": "cu110-ubuntu18.04",
    "pytorch-1.6-gpu-py3": "cu110-ubuntu18.04-v3",
    "pytorch-1.6.0-gpu-py3": "cu110-ubuntu18.04",
}
"""Old images that carry a CUDA suffix on p4d or with smdistributed; sagemaker 3.27.0, image_uris."""
_SMP2_CUDA: tuple[tuple[str, str], ...] = (("2.5", "cu124"), ("2.4", "cu121"), ("2.3", "cu121"))
_SMP2_CUDA += (("2.2", "cu121"), ("2.1", "cu121"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What the installed AWS packages know: images by framework, and the API's model."""

    images: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """`image_uri_config` of the SDK: file name without .json to its training part."""
    source: str = ""
    """Package and version, for messages."""
    request: Shape | None = None
    """CreateTrainingJob in the installed botocore."""
    debugger_registries: Mapping[str, str] = field(default_factory=dict)
    """Region to the account that holds the Debugger rules' image."""


class _Refused(Exception):
    """Carries the one reason why there is no image up to `image_of`."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def image_of(job: Job, catalogue: Catalogue) -> str | Problem:
    """Return the URI of the training image, or why there is none."""
    if job.image_uri:
        return job.image_uri
    if job.estimator == "Estimator":
        return _missing("image_uri", "The generic Estimator has no image of its own.")
    try:
        return _resolve(job, catalogue)
    except _Refused as refused:
        return refused.problem


def dlc_uri(job: Job, catalogue: Catalogue, version: str) -> str:
    """Return the framework's image for a version, whatever the strategy; empty if there is none."""
    config = catalogue.images.get(job.framework, {})
    entry = config.get("versions", {}).get(version)
    if not entry or job.region not in entry.get("registries", {}) or not entry.get("py_versions"):
        return ""
    tag = f"{version}-{_processor(job.instance_type)}-{entry['py_versions'][-1]}"
    return _uri(entry["registries"][job.region], job.region, entry["repository"], tag)


def ecr_host(account: str, region: str) -> str:
    """Return the registry's host name in a region of any partition."""
    suffix = next((dns for prefix, dns in DNS_SUFFIXES if region.startswith(prefix)), "amazonaws.com")
    return f"{account}.dkr.ecr.{region}.{suffix}"


def image_type(job: Job) -> str:
    """Return the type that decides between CPU and GPU image: the first group with GPUs, as the SDK does."""
    types = [group.instance_type for group in job.groups]
    return next((name for name in types if _processor(name) == "gpu"), next(iter(types), ""))


def _processor(instance_type: str) -> str:
    family = instance_type.removeprefix("ml.").partition(".")[0]
    if family.startswith("trn"):
        return "trn"
    return "gpu" if family[:1] in ("g", "p") else "cpu"


def _resolve(job: Job, catalogue: Catalogue) -> str:
    name, version_argument = _config_name(job)
    config = catalogue.images.get(name)
    if config is None:
        raise _Refused(_missing("image_uri", f"{catalogue.source or 'No catalogue'} has no {name}."))
    version = job.get(version_argument)
    if not version:
        raise _Refused(_missing(version_argument, "Neither a version nor image_uri is given."))
    _check_family(job, catalogue, name, version)
    known = tuple(config["versions"])
    aliases = config.get("version_aliases", {})
    entry = config["versions"].get(aliases.get(version, version))
    if entry is None:
        raise _Refused(_unknown_version(name, version_argument, version, known, catalogue))
    if job.estimator == "HuggingFace" and name.startswith("huggingface"):
        return _hugging_face(job, entry, version)
    return _framework(job, name, entry, version, config)


def _config_name(job: Job) -> tuple[str, str]:
    if job.smp2:
        if job.estimator == "HuggingFace":
            raise _Refused(_missing("image_uri", "There is no HuggingFace image with SMP v2 in it."))
        return "pytorch-smp", "framework_version"
    if job.estimator == "HuggingFace":
        compiler = bool(job.get("compiler_config"))
        return ("huggingface-training-compiler" if compiler else "huggingface"), "transformers_version"
    if _processor(image_type(job)) == "trn":
        return f"{job.framework}-neuron", "framework_version"
    if job.get("compiler_config") and job.framework == "pytorch":
        return "pytorch-training-compiler", "framework_version"
    return job.framework, "framework_version"


def _check_family(job: Job, catalogue: Catalogue, name: str, version: str) -> None:
    if not image_type(job):
        raise _Refused(_missing("instance_type", "The image depends on the instance type."))
    if name == "pytorch-smp":
        built = facts.versions("pytorch", "smp2")
        short = {".".join(known.split(".")[:2]) for known in built[:3]}  # the SDK's own aliases
        if version not in built and version not in short:
            # The SDK's list mixes SMP's own versions with PyTorch's and forms tags that AWS does not list.
            raise _Refused(_unknown_version("SMP v2", "framework_version", version, built, catalogue))
    if name.endswith("-neuron"):
        # The SDK takes its only version for any other one, silently: PyTorch 1.13.1 would run as 1.11.0.
        listed = catalogue.images[name]
        if version not in listed["versions"] and version not in listed.get("version_aliases", {}):
            raise _Refused(
                problem=_unknown_version(
                    name, "framework_version", version, tuple(listed["versions"]), catalogue
                )
            )


def _framework(job: Job, name: str, entry: Mapping[str, Any], version: str, config: Mapping[str, Any]) -> str:
    python = _python(job, entry)
    entry = entry.get(python, entry)
    processor = _offered(job, config.get("processors") or entry.get("processors"))
    suffix = ""
    if name == "pytorch-smp":
        built_for_p5 = "cu121" if "p5" in job.instance_type else "cu118"
        suffix = next((cuda for part, cuda in _SMP2_CUDA if part in version), built_for_p5)
    if per_processor := entry.get("container_version"):
        suffix = per_processor[processor]
    if "neuron" in entry["repository"]:
        suffix = f"{max(entry['sdk_versions'])}-{suffix}"
        processor = name.rpartition("-")[2]
    tag = "-".join(part for part in (entry.get("tag_prefix", version), processor, python, suffix) if part)
    if job.instance_type.startswith("ml.p4d.") or {"smdistributed", "pytorchddp"} & set(job.distribution):
        tag = "-".join(part for part in (tag, _CUDA_TAGS.get(f"{name}-{tag}", "")) if part)
    return _uri(_registry(job, entry), job.region, entry["repository"], tag)


def _hugging_face(job: Job, entry: Mapping[str, Any], given: str) -> str:
    base = (
        f"tensorflow{job.get('tensorflow_version')}"
        if job.get("tensorflow_version")
        else f"pytorch{job.get('pytorch_version')}"
    )
    aliases = entry.get("version_aliases", {})
    options = {key: value for key, value in entry.items() if key != "version_aliases"}
    found = options.get(aliases.get(base, base))
    if found is None:
        argument = f"{job.framework}_version"
        offered = ", ".join(options)
        raise _Refused(
            problem=Problem(
                rule="framework-version",
                field=argument,
                value=job.get(argument),
                message=f"transformers {given} comes with {offered}.",
                remedy=f"Use {offered}, or another transformers_version.",
            )
        )
    python = _python(job, found)
    processor = _offered(job, ["gpu"])
    numbers = re.sub("^[a-z]+", "", base)
    # The SDK passes this suffix for plain GPU images whose entry names none.
    suffix = found.get("container_version", {}).get(processor) or (
        "" if job.get("compiler_config") else "cu110-ubuntu18.04"
    )
    tag = "-".join(part for part in (numbers, f"transformers{given}", processor, python, suffix) if part)
    return _uri(_registry(job, found), job.region, found["repository"], tag)


def _python(job: Job, entry: Mapping[str, Any]) -> str:
    offered = tuple(entry.get("py_versions") or [key for key, inner in entry.items() if _has_registry(inner)])
    python = job.get("py_version")
    if not offered:
        return ""
    if python in offered:
        return str(python)
    if python is None:
        raise _Refused(
            problem=_missing("py_version", f"Neither it nor image_uri is given: {offered[-1]} fits.")
        )
    raise _Refused(
        problem=Problem(
            rule="python-version",
            field="py_version",
            value=python,
            message=f"This image exists for {', '.join(offered)} only.",
            remedy=f"Set py_version to {offered[-1]!r}.",
        )
    )


def _has_registry(inner: Any) -> bool:
    return isinstance(inner, Mapping) and "registries" in inner


def _offered(job: Job, processors: list[str] | None) -> str:
    if not processors:
        return ""
    processor = _processor(image_type(job))
    if processor in processors:
        return processor
    raise _Refused(
        problem=Problem(
            rule="image-processor",
            field="instance_type",
            value=job.instance_type,
            message=f"There is no image for {processor} here, only for {', '.join(processors)}.",
            remedy="Choose a type with GPUs, or give image_uri.",
        )
    )


def _registry(job: Job, entry: Mapping[str, Any]) -> str:
    registries = entry["registries"]
    if not job.region:
        raise _Refused(_missing("region", "The image's registry depends on the region."))
    if job.region in registries:
        return str(registries[job.region])
    raise _Refused(
        problem=Problem(
            rule="image-region",
            field="region",
            value=job.region,
            message=f"{entry['repository']} is in {', '.join(sorted(registries))}.",
            remedy="Train in one of them, or copy the image to your registry and give image_uri.",
        )
    )


def _unknown_version(
    name: str, argument: str, version: str, known: tuple[str, ...], catalogue: Catalogue
) -> Problem:
    near = facts.nearest(version, tuple(sorted(known, key=facts.version_key)))
    return Problem(
        rule="framework-version",
        field=argument,
        value=version,
        message=f"{catalogue.source} has no {name} image for it; known are {', '.join(known)}.",
        remedy=f"Use {near}, the nearest, or give image_uri for a newer image.",
    )


def _missing(field: str, why: str) -> Problem:
    return Problem(rule="missing-argument", field=field, value=None, message=why, remedy=f"Set {field}.")


def _uri(account: str, region: str, repository: str, tag: str) -> str:
    return f"{ecr_host(account, region)}/{repository}:{tag}"
