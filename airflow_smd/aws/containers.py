"""What the installed AWS packages know: images of the SDK, API model of botocore."""

from __future__ import annotations

import json
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.shapes import Shape

FRAMEWORKS = (
    "pytorch",
    "tensorflow",
    "huggingface",
    "pytorch-smp",
    "pytorch-neuron",
    "pytorch-neuronx",
    "tensorflow-neuron",
    "huggingface-training-compiler",
    "pytorch-training-compiler",
    "hyperpod-recipes-neuron",
)
"""The SDK's files that hold training images of the estimators."""


@cache
def installed_catalogue() -> Catalogue:
    """Return the images of the installed sagemaker and CreateTrainingJob of the installed botocore.

    The SDK's data files are read by their path: importing sagemaker takes seconds, this milliseconds. Where
    no SDK is installed, the images are those of our own snapshot.
    """
    folder = _image_folder()
    if folder is None:
        return snapshot_catalogue()
    images = {name: found for name in FRAMEWORKS if (found := _training_images(folder / f"{name}.json"))}
    debugger = json.loads((folder / "debugger.json").read_text("utf-8"))
    return Catalogue(
        images=images,
        source=f"sagemaker {_version('sagemaker')}",
        request=create_training_job(),
        debugger_registries=debugger["versions"]["latest"]["registries"],
    )


def snapshot_catalogue() -> Catalogue:
    """Return the images as one release of the SDK had them (`tables/training_images.json`)."""
    table = json.loads((files("airflow_smd.domain") / "tables" / "training_images.json").read_text("utf-8"))
    return Catalogue(
        images=_with_registries(table["images"], table["registries"]),
        source=f"{table['source']}, of {table['date']}",
        request=create_training_job(),
        debugger_registries=table["debugger_registries"],
    )


def _with_registries(value: Any, registries: dict[str, Any]) -> Any:
    """Return the snapshot's images with each name of a set of registries replaced by the set."""
    if isinstance(value, dict):
        return {
            key: registries[inner] if key == "registries" else _with_registries(inner, registries)
            for key, inner in value.items()
        }
    return value


@cache
def create_training_job() -> Shape:
    """Return the API's model of a CreateTrainingJob request."""
    from botocore.session import get_session

    model = get_session().get_service_model("sagemaker")
    return shape_of(model.operation_model("CreateTrainingJob").input_shape)


def shape_of(shape: Any) -> Shape:
    """Return one of botocore's shapes as a plain value, with all that it refers to."""
    limits = shape.metadata
    kind = shape.type_name
    return Shape(
        name=shape.name,
        kind=kind,
        members={name: shape_of(member) for name, member in shape.members.items()}
        if kind == "structure"
        else {},
        required=tuple(limits.get("required", ())),
        element=shape_of({"list": lambda: shape.member, "map": lambda: shape.value}[kind]())
        if kind in ("list", "map")
        else None,
        key=shape_of(shape.key) if kind == "map" else None,
        minimum=limits.get("min"),
        maximum=limits.get("max"),
        pattern=limits.get("pattern", ""),
        choices=tuple(getattr(shape, "enum", ())),
    )


def _image_folder() -> Path | None:
    spec = find_spec("sagemaker")
    for root in spec.submodule_search_locations or () if spec else ():
        folder = Path(root) / "core" / "image_uri_config"
        if folder.is_dir():
            return folder
    return None


def _training_images(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    data = json.loads(path.read_text("utf-8"))
    found: dict[str, Any] = data.get("training", data)
    return found if "versions" in found else None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"
