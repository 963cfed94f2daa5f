"""What the plain-Python image builder keeps: layers as tar and as directories, and what made them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from airflow_smd.sandbox.oci_layer import Layer, pack


class BuildError(Exception):
    """A step that cannot be done; the message is for the build's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What FROM stands on."""

    layers: tuple[Layer, ...] = ()
    on_host: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An image in the builder's store."""

    digest: str
    config: str
    """The configuration (JSON), byte for byte."""
    layers: tuple[Layer, ...]


class Store:
    """Layers, as tar and as directories, and what was built from what."""

    def __init__(self, directory: Path) -> None:
        self.blobs = directory / "blobs"
        self._layers = directory / "layers"
        self._cache = directory / "cache"
        self._names = directory / "names"
        for path in (self.blobs, self._layers, self._cache, self._names):
            path.mkdir(parents=True, exist_ok=True)
        self.scratch = directory / "scratch"

    def blob(self, digest: str) -> Path:
        """Return where a layer's tar lies."""
        return self.blobs / digest.removeprefix("sha256:")

    def directory(self, layer: Layer) -> Path:
        """Return where a layer's files lie."""
        return self._layers / layer.diff_id.removeprefix("sha256:")

    def cached(self, key: str) -> Layer | None:
        """Return the layer that the same step made of the same input."""
        path = self._cache / key
        layer = Layer(**json.loads(path.read_text())) if path.is_file() else None
        return layer if layer and self.directory(layer).is_dir() else None

    def keep(self, key: str, files: Path) -> Layer:
        """Turn a directory into a layer and remember what made it."""
        layer = pack(files, self.blobs)
        if self.directory(layer).exists():
            shutil.rmtree(files)
        else:
            files.rename(self.directory(layer))
        (self._cache / key).write_text(json.dumps(asdict(layer)))
        return layer

    def name(self, tag: str, image: Built) -> None:
        """Give an image a name."""
        (self._names / hashed(tag)).write_text(json.dumps(asdict(image)))

    def find(self, tag: str) -> Built | None:
        """Return the image of this name."""
        path = self._names / hashed(tag)
        if not path.is_file():
            return None
        raw = json.loads(path.read_text())
        return Built(
            digest=raw["digest"],
            config=raw["config"],
            layers=tuple(Layer(**layer) for layer in raw["layers"]),
        )


def hashed(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
