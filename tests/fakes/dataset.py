"""Data sets in memory; they refuse and answer as S3 does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import md5
from typing import Any

from airflow_smd.domain.dataset import MANIFEST_NAME, Manifest, S3Folder, Source, SourceObject, is_data
from airflow_smd.errors import BucketMissing, DatasetEmpty


class FakeDatasets:
    def __init__(self, *buckets: str) -> None:
        self.buckets = set(buckets)
        self.objects: dict[tuple[str, str], bytes] = {}
        self.lists = 0

    def put(self, bucket: str, key: str, content: bytes) -> None:
        self.objects[bucket, key] = content

    def _below(self, folder: S3Folder) -> dict[str, bytes]:
        self.lists += 1
        if folder.bucket not in self.buckets:
            raise BucketMissing(folder.uri)
        return {
            key.removeprefix(folder.prefix): content
            for (bucket, key), content in sorted(self.objects.items())
            if bucket == folder.bucket and key.startswith(folder.prefix)
        }

    def source(self, folder: S3Folder) -> Source:
        objects = [
            SourceObject(name=name, etag=md5(content).hexdigest(), size_bytes=len(content))
            for name, content in self._below(folder).items()
            if is_data(name)
        ]
        if not objects:
            raise DatasetEmpty(folder.uri)
        return Source(uri=folder.uri, objects=objects)

    def sizes(self, folder: S3Folder) -> dict[str, int]:
        return {name: len(content) for name, content in self._below(folder).items()}

    def manifest(self, folder: S3Folder) -> Manifest | None:
        text = self._below(folder).get(MANIFEST_NAME)
        return None if text is None else Manifest.loads(text, f"{folder.uri}{MANIFEST_NAME}")

    def seal(self, folder: S3Folder, manifest: Manifest) -> Manifest:
        sealed = self.manifest(folder)
        if sealed is not None:
            return sealed
        self.put(folder.bucket, folder.prefix + MANIFEST_NAME, manifest.dumps().encode())
        return manifest

    def parts(self, folder: S3Folder, hosts: int) -> list[dict[str, Any]]:
        below = self._below(folder)
        names = [f"parts/part-{host}of{hosts}.json" for host in range(hosts)]
        return [json.loads(below[name]) for name in names if name in below]

    def upload(self, folder: S3Folder, files: Mapping[str, bytes]) -> None:
        self._below(folder)
        for name, content in files.items():
            self.put(folder.bucket, folder.prefix + name, content)
