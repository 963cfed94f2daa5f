"""From an image's URI to directories that a training host can be started from."""

from __future__ import annotations

import json
import re
from pathlib import Path

from airflow_smd.sandbox.oci import HOST_LABEL
from airflow_smd.sandbox.oci_layer import unpack
from airflow_smd.sandbox.registry import Blobs, Catalogue
from airflow_smd.sandbox.registry_client import base_of
from airflow_smd.sandbox.runtime import ACCOUNT_ID, Image

_URI = re.compile(
    rf"{ACCOUNT_ID}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?/(?P<name>[^:@]+)"
    r"(?::(?P<tag>[\w.-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


class ImageFinder:
    """Finds images of the sandbox's registry, and unpacks each layer once.

    Args:
        directory: where unpacked layers are kept, by digest.
        blobs: the registry's layers.
        catalogue: the registry's images.
    """

    def __init__(self, directory: Path, blobs: Blobs, catalogue: Catalogue) -> None:
        self._directory = directory
        self._blobs = blobs
        self._catalogue = catalogue

    def find(self, uri: str) -> Image | None:
        """Return the image, None if the URI is not of this account or nothing was pushed there."""
        parts = _URI.fullmatch(uri)
        manifest = parts and self._catalogue.get(parts["name"], parts["digest"] or parts["tag"] or "latest")
        if not manifest:
            return None
        listed = json.loads(manifest.body)
        config_path = self._blobs.path(listed["config"]["digest"])
        if not config_path.is_file():
            return None  # put by PutImage, without a push
        base = base_of(json.loads(config_path.read_text()), (), HOST_LABEL)
        self._directory.mkdir(parents=True, exist_ok=True)
        return Image(
            digest=manifest.digest,
            layers=tuple(self._unpacked(layer["digest"]) for layer in listed["layers"]),
            on_host_root=base.on_host,
            environment=dict(base.environment),
            working_directory=base.config.get("WorkingDir") or "/",
        )

    def _unpacked(self, digest: str) -> Path:
        return unpack(self._blobs.path(digest), self._directory / digest.removeprefix("sha256:"))
