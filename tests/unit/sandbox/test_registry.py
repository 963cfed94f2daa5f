"""The registry speaks Docker's HTTP API v2, and refuses as ECR does."""

from __future__ import annotations

import hashlib
import json

import pytest
from werkzeug.test import Client

from airflow_smd.sandbox.oci_layer import Layer, manifest
from airflow_smd.sandbox.registry import Blobs, Manifest, Registry, TagRefused

CONFIG = b"{}"
LAYER = b"layer"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class FakeCatalogue:
    """One repository whose tags cannot be moved."""

    def __init__(self) -> None:
        self.images: dict[str, Manifest] = {}

    def has(self, name: str) -> bool:
        return name == "digits"

    def get(self, name: str, reference: str) -> Manifest | None:
        return self.images.get(reference)

    def put(self, name: str, tag: str | None, manifest: Manifest) -> None:
        if tag in self.images and self.images[tag] != manifest:
            raise TagRefused(f"The image tag '{tag}' already exists")
        self.images |= {key: manifest for key in (tag, manifest.digest) if key}

    def tags(self, name: str) -> list[str]:
        return sorted(tag for tag in self.images if ":" not in tag)


@pytest.fixture
def client(tmp_path) -> Client:
    return Client(Registry(Blobs(tmp_path), FakeCatalogue()))


def upload(client: Client, content: bytes) -> None:
    place = client.post("/v2/digits/blobs/uploads/").headers["Location"]
    assert client.put(f"{place}?digest={digest(content)}", data=content).status_code == 201


def image() -> bytes:
    layer = Layer(digest=digest(LAYER), diff_id=digest(b"diff"), size_bytes=len(LAYER))
    return json.dumps(manifest(CONFIG, [layer])).encode()


def pushed(client: Client, tag: str = "v1"):
    upload(client, CONFIG)
    upload(client, LAYER)
    return client.put(f"/v2/digits/manifests/{tag}", data=image(), content_type="application/vnd.test+json")


def code(answer) -> tuple[int, str]:
    return answer.status_code, answer.json["errors"][0]["code"]


def test_it_says_which_api_it_speaks(client):
    answer = client.get("/v2/")

    assert (answer.status_code, answer.headers["Docker-Distribution-Api-Version"]) == (200, "registry/2.0")


def test_a_pushed_image_is_pulled_by_tag_and_by_digest(client):
    pushed(client)

    for reference in ("v1", digest(image())):
        answer = client.get(f"/v2/digits/manifests/{reference}")
        assert (answer.data, answer.headers["Docker-Content-Digest"]) == (image(), digest(image()))
        assert answer.content_type == "application/vnd.test+json"


def test_a_blob_comes_in_pieces_and_goes_out_whole(client):
    place = client.post("/v2/digits/blobs/uploads/").headers["Location"]
    assert client.patch(place, data=b"lay").headers["Range"] == "0-2"
    client.patch(place, data=b"er")
    client.put(f"{place}?digest={digest(LAYER)}")

    assert client.get(f"/v2/digits/blobs/{digest(LAYER)}").data == LAYER


def test_a_blob_comes_in_one_request(client):
    client.post(f"/v2/digits/blobs/uploads/?digest={digest(LAYER)}", data=LAYER)

    assert client.head(f"/v2/digits/blobs/{digest(LAYER)}").headers["Content-Length"] == str(len(LAYER))


def test_a_known_blob_is_mounted_without_an_upload(client):
    upload(client, LAYER)

    assert client.post(f"/v2/digits/blobs/uploads/?mount={digest(LAYER)}&from=x").status_code == 201


def test_content_with_another_digest_is_refused_and_forgotten(client):
    place = client.post("/v2/digits/blobs/uploads/").headers["Location"]

    assert code(client.put(f"{place}?digest={digest(b'other')}", data=LAYER)) == (400, "DIGEST_INVALID")
    assert client.head(f"/v2/digits/blobs/{digest(LAYER)}").status_code == 404


def test_a_cancelled_upload_is_gone(client):
    place = client.post("/v2/digits/blobs/uploads/").headers["Location"]
    client.delete(place)

    assert code(client.patch(place, data=b"x")) == (404, "BLOB_UPLOAD_UNKNOWN")


def test_an_image_without_its_layers_is_refused(client):
    answer = client.put("/v2/digits/manifests/v1", data=image())

    assert code(answer) == (400, "MANIFEST_BLOB_UNKNOWN")
    assert client.get("/v2/digits/manifests/v1").status_code == 404


def test_a_tag_is_not_moved_where_ecr_forbids_it(client):
    pushed(client)
    other = json.loads(image()) | {"annotations": {"a": "b"}}

    assert code(client.put("/v2/digits/manifests/v1", data=json.dumps(other))) == (400, "TAG_INVALID")


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        pytest.param("/v2/other/tags/list", (404, "NAME_UNKNOWN"), id="a repository that ECR lacks"),
        pytest.param("/v2/digits/manifests/no", (404, "MANIFEST_UNKNOWN"), id="a tag that is not there"),
        pytest.param(
            f"/v2/digits/blobs/{digest(b'?')}", (404, "BLOB_UNKNOWN"), id="a layer that is not there"
        ),
        pytest.param("/v2/digits/what", (404, "NAME_INVALID"), id="a path of no meaning"),
    ],
)
def test_what_is_not_there_is_named(client, path, answer):
    assert code(client.get(path)) == answer


def test_tags_are_listed(client):
    pushed(client, "b")
    pushed(client, "a")

    assert client.get("/v2/digits/tags/list").json == {"name": "digits", "tags": ["a", "b"]}
