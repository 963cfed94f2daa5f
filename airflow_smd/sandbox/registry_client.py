"""Push and pull over Docker's HTTP API v2, as `docker push` does."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, BinaryIO

from airflow_smd.sandbox.oci_layer import Layer, manifest, unpack
from airflow_smd.sandbox.oci_store import Base, Built, Store

ACCEPTED = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"


class RegistryRefused(Exception):
    """The registry's own words for what it does not do."""


class RegistryClient:
    """One registry.

    Args:
        endpoint_url: where it answers, without `/v2/`.
    """

    def __init__(self, endpoint_url: str) -> None:
        self._url = endpoint_url.rstrip("/")

    def push(self, name: str, tag: str, image: Built, store: Store) -> str:
        """Upload what the registry lacks, then the manifest; return the digest."""
        for layer in image.layers:
            if not self._has(name, layer.digest):
                with store.blob(layer.digest).open("rb") as content:
                    self._upload(name, layer.digest, content, layer.size_bytes)
        config = image.config.encode()
        digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        if not self._has(name, digest):
            self._upload(name, digest, config, len(config))
        body = manifest(config, list(image.layers))
        headers = {"Content-Type": body["mediaType"]}
        answer = self._call("PUT", f"/v2/{name}/manifests/{tag}", json.dumps(body).encode(), headers)
        return str(answer.headers["Docker-Content-Digest"])

    def pull(self, name: str, reference: str, store: Store, host_label: str) -> Base | None:
        """Return an image as a base, its layers unpacked into the store; None if there is none."""
        described = self.describe(name, reference)
        if described is None:
            return None
        found, config = described
        layers = []
        for listed, diff_id in zip(found["layers"], config["rootfs"]["diff_ids"], strict=True):
            layer = Layer(digest=listed["digest"], diff_id=diff_id, size_bytes=listed["size"])
            blob = store.blob(layer.digest)
            if not blob.is_file():
                with self._call("GET", f"/v2/{name}/blobs/{layer.digest}") as answer:
                    part = blob.with_suffix(".part")
                    with part.open("wb") as file:
                        while chunk := answer.read(1 << 20):
                            file.write(chunk)
                    part.replace(blob)
            unpack(blob, store.directory(layer))
            layers.append(layer)
        return base_of(config, tuple(layers), host_label)

    def describe(self, name: str, reference: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return an image's manifest and configuration; None if there is none."""
        accepted = {"Accept": ACCEPTED}
        try:
            with self._call("GET", f"/v2/{name}/manifests/{reference}", headers=accepted) as answer:
                found = json.load(answer)
        except RegistryRefused:
            return None
        with self._call("GET", f"/v2/{name}/blobs/{found['config']['digest']}") as answer:
            return found, json.load(answer)

    def _has(self, name: str, digest: str) -> bool:
        try:
            self._call("HEAD", f"/v2/{name}/blobs/{digest}").close()
        except RegistryRefused as refused:
            if str(refused).startswith("404"):
                return False
            raise
        return True

    def _upload(self, name: str, digest: str, content: bytes | BinaryIO, size: int) -> None:
        place = self._call("POST", f"/v2/{name}/blobs/uploads/", b"").headers["Location"]
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        self._call("PUT", f"{place}?digest={digest}", content, headers).close()

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | BinaryIO | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        request = urllib.request.Request(self._url + path, body, dict(headers or {}), method=method)
        try:
            return urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise RegistryRefused(f"{error.code} {_message(text)}") from error


def base_of(config: Mapping[str, Any], layers: tuple[Layer, ...], host_label: str) -> Base:
    """Return what an image with this configuration is as a base."""
    kept = dict(config.get("config", {}))
    pairs = (item.partition("=") for item in kept.pop("Env", None) or [])
    on_host = (kept.get("Labels") or {}).get(host_label) == "true"
    return Base(
        layers=layers, on_host=on_host, environment={key: value for key, _, value in pairs}, config=kept
    )


def _message(text: str) -> str:
    try:
        return "; ".join(f"{item['code']}: {item['message']}" for item in json.loads(text)["errors"])
    except (ValueError, KeyError, TypeError):
        return text[:300]
