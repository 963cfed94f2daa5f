"""The container registry behind the sandbox's ECR: Docker's HTTP API v2, blobs on disk, manifests in ECR."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from werkzeug import Request, Response
from werkzeug.exceptions import HTTPException

MANIFEST_TYPES = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
)
_ROUTE = re.compile(
    r"/v2/(?P<name>[a-z0-9._/-]+?)/(?:blobs/uploads/(?P<upload>[\w-]*)|blobs/(?P<digest>sha256:[0-9a-f]{64})"
    r"|manifests/(?P<reference>[\w.:-]+)|(?P<tags>tags/list))"
)
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a tag or a digest stands for."""

    body: str
    media_type: str
    digest: str


class TagRefused(Exception):
    """ECR does not let this tag be moved; the message is ECR's."""


class Catalogue(Protocol):
    """Which repositories there are and what lies in them: ECR."""

    def has(self, name: str) -> bool:
        """Tell whether the repository exists."""

    def get(self, name: str, reference: str) -> Manifest | None:
        """Return the manifest of a tag or digest."""

    def put(self, name: str, tag: str | None, manifest: Manifest) -> None:
        """Add an image; TagRefused if the tag is taken for good."""

    def tags(self, name: str) -> list[str]:
        """Return the tags, sorted."""


class Blobs:
    """Layers and configurations by digest, on disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._uploads = directory / "uploads"

    def path(self, digest: str) -> Path:
        """Return where a blob lies, or would."""
        return self._directory / "blobs" / digest.replace(":", "/")

    def begin(self) -> str:
        """Start an upload and return its id."""
        upload = str(uuid.uuid4())
        self._uploads.mkdir(parents=True, exist_ok=True)
        (self._uploads / upload).touch()
        return upload

    def append(self, upload: str, chunks: Iterable[bytes]) -> int:
        """Add to an upload and return its size; KeyError if there is none."""
        path = self._uploads / upload
        if not path.is_file():
            raise KeyError(upload)
        with path.open("ab") as file:
            for chunk in chunks:
                file.write(chunk)
            return file.tell()

    def finish(self, upload: str, digest: str) -> bool:
        """Keep an upload under its digest; False, and forget it, if the content has another."""
        path = self._uploads / upload
        with path.open("rb") as file:
            right = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" == digest
        if right:
            self.path(digest).parent.mkdir(parents=True, exist_ok=True)
            path.replace(self.path(digest))
        else:
            path.unlink()
        return right

    def cancel(self, upload: str) -> None:
        """Forget an upload."""
        (self._uploads / upload).unlink(missing_ok=True)


class Registry:
    """A WSGI application that answers below `/v2/`."""

    def __init__(self, blobs: Blobs, catalogue: Catalogue) -> None:
        self._blobs = blobs
        self._catalogue = catalogue

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request."""
        request = Request(environ)
        try:
            response = self._answer(request)
        except HTTPException as error:
            response = _error(error.code or 400, "UNSUPPORTED", error.description or "")
        response.headers["Docker-Distribution-Api-Version"] = "registry/2.0"
        answer: Iterable[bytes] = response(environ, start_response)
        return answer

    def _answer(self, request: Request) -> Response:
        if request.path.rstrip("/") == "/v2":
            return Response("{}", content_type="application/json")
        route = _ROUTE.fullmatch(request.path)
        if not route:
            return _error(404, "NAME_INVALID", f"{request.path} is not part of the registry's API")
        name = route["name"]
        if not self._catalogue.has(name):
            message = f"The repository with name '{name}' does not exist in the registry"
            return _error(404, "NAME_UNKNOWN", message)
        if route["upload"] is not None:
            return self._upload(request, name, route["upload"])
        if route["digest"]:
            return self._blob(request, route["digest"])
        if route["reference"]:
            return self._manifest(request, name, route["reference"])
        return _json({"name": name, "tags": self._catalogue.tags(name)})

    def _blob(self, request: Request, digest: str) -> Response:
        path = self._blobs.path(digest)
        if not path.is_file():
            return _error(404, "BLOB_UNKNOWN", f"{digest} is not here")
        headers = {"Docker-Content-Digest": digest, "Content-Length": str(path.stat().st_size)}
        content: Iterable[bytes] = () if request.method == "HEAD" else _chunks(path.open("rb"))
        return Response(content, headers=headers, content_type="application/octet-stream")

    def _upload(self, request: Request, name: str, upload: str) -> Response:
        if request.method == "POST" and not upload:
            if self._blobs.path(request.args.get("mount", "none:")).is_file():
                return _created(name, request.args["mount"])
            upload = self._blobs.begin()
            if "digest" not in request.args:
                return _accepted(name, upload, 0)
        try:
            if request.method == "DELETE":
                self._blobs.cancel(upload)
                return Response(status=204)
            size = self._blobs.append(upload, () if request.method == "GET" else _chunks(request.stream))
        except KeyError:
            return _error(404, "BLOB_UPLOAD_UNKNOWN", f"There is no upload {upload}")
        if request.method in ("PUT", "POST"):
            digest = request.args.get("digest", "")
            if not self._blobs.finish(upload, digest):
                return _error(400, "DIGEST_INVALID", f"The content does not have the digest {digest}")
            return _created(name, digest)
        return _accepted(name, upload, size, status=204 if request.method == "GET" else 202)

    def _manifest(self, request: Request, name: str, reference: str) -> Response:
        if request.method == "PUT":
            return self._put_manifest(request, name, reference)
        if request.method not in ("GET", "HEAD"):
            return _error(405, "UNSUPPORTED", "ECR deletes images through BatchDeleteImage")
        manifest = self._catalogue.get(name, reference)
        if manifest is None:
            return _error(404, "MANIFEST_UNKNOWN", "Requested image not found")
        headers = {"Docker-Content-Digest": manifest.digest}
        return Response(manifest.body, headers=headers, content_type=manifest.media_type)

    def _put_manifest(self, request: Request, name: str, reference: str) -> Response:
        body = request.get_data()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        by_digest = reference.startswith("sha256:")
        if by_digest and reference != digest:
            return _error(400, "DIGEST_INVALID", f"The manifest has the digest {digest}")
        try:
            named = _named_blobs(json.loads(body))
        except (ValueError, KeyError, TypeError, AttributeError):
            return _error(400, "MANIFEST_INVALID", "Not the manifest of one image")
        if missing := [blob for blob in named if not self._blobs.path(blob).is_file()]:
            return _error(400, "MANIFEST_BLOB_UNKNOWN", f"Layers are missing: {', '.join(missing)}")
        media_type = request.content_type or MANIFEST_TYPES[0]
        manifest = Manifest(body=body.decode(), media_type=media_type, digest=digest)
        try:
            self._catalogue.put(name, None if by_digest else reference, manifest)
        except TagRefused as refused:
            return _error(400, "TAG_INVALID", str(refused))
        headers = {"Docker-Content-Digest": digest, "Location": f"/v2/{name}/manifests/{digest}"}
        return Response(status=201, headers=headers)


class EcrCatalogue:
    """The repositories of moto's ECR in one Region."""

    def __init__(self, backend: Any, changing: Any) -> None:
        self._backend = backend
        self._changing = changing

    def has(self, name: str) -> bool:
        """Tell whether the repository exists."""
        return name in self._backend.repositories

    def get(self, name: str, reference: str) -> Manifest | None:
        """Return the manifest of a tag or digest."""
        for image in self._images(name):
            if reference in (*image.image_tags, image.get_image_digest()):
                return Manifest(
                    body=image.image_manifest,
                    media_type=image.image_manifest_media_type,
                    digest=image.get_image_digest(),
                )
        return None

    def put(self, name: str, tag: str | None, manifest: Manifest) -> None:
        """Add an image; TagRefused if the tag is taken for good."""
        from moto.core.exceptions import JsonRESTError
        from moto.ecr.exceptions import ImageAlreadyExistsException

        earlier = self.get(name, tag) if tag else None
        if earlier and earlier.digest == manifest.digest:
            return
        if earlier and self._backend.repositories[name].is_tag_immutable():
            raise TagRefused(
                f"The image tag '{tag}' already exists in the '{name}' repository and cannot be overwritten "
                "because the tag is immutable."
            )
        with self._changing():
            try:
                self._backend.put_image(name, manifest.body, tag, manifest.media_type, manifest.digest)
            except ImageAlreadyExistsException:
                return
            except JsonRESTError as error:  # another push was faster
                raise TagRefused(error.message) from error

    def tags(self, name: str) -> list[str]:
        """Return the tags, sorted."""
        return sorted(tag for image in self._images(name) for tag in image.image_tags)

    def _images(self, name: str) -> list[Any]:
        repository = self._backend.repositories.get(name)
        return list(repository.images) if repository else []


def _named_blobs(manifest: Mapping[str, Any]) -> list[str]:
    return [manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]


def _chunks(stream: Any) -> Iterable[bytes]:
    while chunk := stream.read(_CHUNK):
        yield chunk


def _accepted(name: str, upload: str, size: int, status: int = 202) -> Response:
    headers = {
        "Location": f"/v2/{name}/blobs/uploads/{upload}",
        "Docker-Upload-UUID": upload,
        "Range": f"0-{max(0, size - 1)}",
    }
    return Response(status=status, headers=headers)


def _created(name: str, digest: str) -> Response:
    headers = {"Location": f"/v2/{name}/blobs/{digest}", "Docker-Content-Digest": digest}
    return Response(status=201, headers=headers)


def _json(answer: Mapping[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(answer), status, content_type="application/json")


def _error(status: int, code: str, message: str) -> Response:
    return _json({"errors": [{"code": code, "message": message}]}, status)
