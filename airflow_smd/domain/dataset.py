"""What a data set is: its objects before preprocessing, its shards and their seal after."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

from airflow_smd.errors import Problem, refuse

MANIFEST_VERSION = 1
MANIFEST_NAME = "manifest.json"
FORMAT = "webdataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Folder:
    """All objects of a bucket whose keys begin with a prefix that is empty or ends with a slash."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, uri: str) -> S3Folder:
        """Return the folder of `s3://bucket/some/prefix`; ValueError says what is allowed."""
        scheme, _, rest = uri.strip().partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme != "s3" or not bucket or "//" in prefix:
            raise ValueError(f"{uri!r} is not a folder in S3: write s3://bucket/prefix/")
        return cls(bucket=bucket, prefix=f"{prefix.rstrip('/')}/" if prefix.strip("/") else "")

    @property
    def uri(self) -> str:
        """Return `s3://bucket/prefix/`."""
        return f"s3://{self.bucket}/{self.prefix}"

    def __truediv__(self, name: str) -> S3Folder:
        """Return a folder inside this one."""
        return S3Folder(bucket=self.bucket, prefix=f"{self.prefix}{name}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceObject:
    """One object of the raw data."""

    name: str
    """Its key below the source's prefix."""
    etag: str
    size_bytes: int

    @property
    def check(self) -> int:
        """Return the number by which the container says that it read this object (`InputFile.check`)."""
        text = f"{self.name}\0{self.size_bytes}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def is_data(name: str) -> bool:
    """Say whether an object counts: not a folder marker, `_SUCCESS` and the like; the container agrees."""
    base = name.rpartition("/")[2]
    return bool(base) and not base.startswith((".", "_"))


@dataclass(frozen=True, kw_only=True)
class Source:
    """The raw data as they are now."""

    uri: str
    objects: Sequence[SourceObject]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all objects."""
        return sum(item.size_bytes for item in self.objects)

    @property
    def check(self) -> str:
        """Return what the hosts' checks add up to when every object was read exactly once."""
        return f"{sum(item.check for item in self.objects) % 2**64:016x}"

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of names, ETags and sizes: any change of the data changes it, a copy does not."""
        digest = blake2b(digest_size=16)
        for item in sorted(self.objects, key=lambda item: item.name):
            digest.update(f"{item.name}\0{item.etag}\0{item.size_bytes}\n".encode())
        return digest.hexdigest()

    @property
    def directories(self) -> list[str]:
        """Return the names of the directories that hold objects, sorted: the classes, if they are any."""
        return sorted({item.name.rpartition("/")[0].rpartition("/")[2] for item in self.objects} - {""})

    def summary(self) -> dict[str, Any]:
        """Return what the manifest says of the source."""
        return {
            "uri": self.uri,
            "bytes": self.size_bytes,
            "files": len(self.objects),
            "fingerprint": self.fingerprint,
            "check": self.check,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One tar of samples."""

    name: str
    """Below the manifest's URI."""
    size_bytes: int
    samples: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The seal of a preprocessed data set: what is there, of what it was made, whom it serves."""

    uri: str
    fingerprint: str
    source: Mapping[str, Any]
    transform: Mapping[str, Any]
    world_sizes: Sequence[int]
    splits: Mapping[str, Sequence[Shard]]
    created_by: str
    classes: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Samples left out, by reason."""
    treated: Mapping[str, int] = field(default_factory=dict)
    """Samples that were mended, by what was odd."""

    @property
    def uri_of_itself(self) -> str:
        """Return the S3 URI of the manifest."""
        return f"{self.uri}{MANIFEST_NAME}"

    def totals(self, split: str) -> dict[str, int]:
        """Return bytes, samples and number of shards of a split."""
        shards = self.splits[split]
        return {
            "bytes": sum(shard.size_bytes for shard in shards),
            "samples": sum(shard.samples for shard in shards),
            "shards": len(shards),
        }

    def dumps(self) -> str:
        """Return the manifest as JSON text."""
        splits = {}
        for name, shards in self.splits.items():
            totals = self.totals(name)
            splits[name] = {
                "shards": [
                    {"name": s.name, "bytes": s.size_bytes, "samples": s.samples, "sha256": s.sha256}
                    for s in shards
                ],
                "bytes": totals["bytes"],
                "samples": totals["samples"],
            }
        return json.dumps(
            {
                "version": MANIFEST_VERSION,
                "uri": self.uri,
                "format": FORMAT,
                "fingerprint": self.fingerprint,
                "source": dict(self.source),
                "transform": dict(self.transform),
                "world_sizes": list(self.world_sizes),
                "splits": splits,
                "classes": dict(self.classes),
                "skipped": dict(self.skipped),
                "treated": dict(self.treated),
                "created_by": self.created_by,
            },
            indent=1,
        )

    @classmethod
    def loads(cls, text: str | bytes, where: str) -> Manifest:
        """Return the manifest in `text`, which was read at `where`.

        Raises:
            InvalidInput: it is not a manifest of this version; every problem is listed.
        """
        try:
            raw = json.loads(text)
        except ValueError as error:
            refuse([_broken(where, str(error), "it is not JSON.")])
            raise AssertionError("refused") from error
        refuse(_manifest_problems(raw, where))
        splits = {
            name: [
                Shard(name=s["name"], size_bytes=s["bytes"], samples=s["samples"], sha256=s["sha256"])
                for s in split["shards"]
            ]
            for name, split in raw["splits"].items()
        }
        plain = ("uri", "fingerprint", "source", "transform", "world_sizes")
        optional = {key: raw[key] for key in ("classes", "skipped", "treated") if key in raw}
        return cls(
            **{key: raw[key] for key in plain},
            splits=splits,
            created_by=raw.get("created_by", ""),
            **optional,
        )


def _broken(field_name: str, value: Any, message: str) -> Problem:
    return Problem(
        rule="manifest",
        field=field_name,
        value=value,
        message=message,
        remedy="Delete the manifest, and preprocess again.",
    )


_FIELDS: dict[str, type] = {
    "uri": str,
    "fingerprint": str,
    "source": dict,
    "transform": dict,
    "world_sizes": list,
    "splits": dict,
}
_SHARD_FIELDS: dict[str, type] = {"name": str, "bytes": int, "samples": int, "sha256": str}


def _manifest_problems(raw: Any, where: str) -> list[Problem]:
    if not isinstance(raw, dict) or raw.get("version") != MANIFEST_VERSION or raw.get("format") != FORMAT:
        found = (raw.get("version"), raw.get("format")) if isinstance(raw, dict) else raw
        wanted = f"this package reads version {MANIFEST_VERSION}, format {FORMAT}."
        return [_broken(where, found, wanted)]
    problems = [
        _broken(f"{where}: {name}", raw.get(name), f"a {kind.__name__} is wanted.")
        for name, kind in _FIELDS.items()
        if not isinstance(raw.get(name), kind)
    ]
    splits = raw["splits"] if isinstance(raw.get("splits"), dict) else {}
    for split, content in splits.items():
        shards = content.get("shards") if isinstance(content, dict) else None
        if not isinstance(shards, list) or not shards:
            problems.append(_broken(f"{where}: splits.{split}.shards", shards, "a list of shards is wanted."))
            continue
        for number, shard in enumerate(shards):
            path = f"{where}: splits.{split}.shards[{number}]"
            if not isinstance(shard, dict):
                problems.append(_broken(path, shard, "a shard is wanted."))
                continue
            problems += [
                _broken(f"{path}.{name}", shard.get(name), f"a {kind.__name__} is wanted.")
                for name, kind in _SHARD_FIELDS.items()
                if not isinstance(shard.get(name), kind)
            ]
    return problems


def disagreement(parts: Sequence[Mapping[str, Any]], *, hosts: int, source: Mapping[str, Any]) -> str | None:
    """Return what keeps the hosts' partial manifests from being one data set, None if nothing does."""
    missing = sorted(set(range(hosts)) - {part["host"] for part in parts})
    if missing or len(parts) != hosts:
        return f"the partial manifests of hosts {missing} of {hosts} are missing"
    schemas = {json.dumps(part["schema"], sort_keys=True) for part in parts if part["schema"]}
    if len(schemas) > 1:
        return f"the hosts read data of different schemas: {' and '.join(sorted(schemas))}"
    read = {name: sum(part["source"][name] for part in parts) for name in ("files", "bytes")}
    check = f"{sum(int(part['source']['check'], 16) for part in parts) % 2**64:016x}"
    if (read["files"], read["bytes"], check) != (source["files"], source["bytes"], source["check"]):
        return (
            f"the hosts read {read['files']} files of {read['bytes']} bytes, but the source had "
            f"{source['files']} files of {source['bytes']} bytes when the job was planned"
        )
    return None


def merged(parts: Sequence[Mapping[str, Any]], **facts: Any) -> Manifest:
    """Return the manifest over all hosts; `facts` are the fields that no host knows.

    A split's shards stand host by host. Each host wrote a multiple of every world size, so `shards[rank::n]`
    gives every rank the same number of shards of each host.
    """
    splits: dict[str, list[Shard]] = {}
    skipped: dict[str, int] = {}
    treated: dict[str, int] = {}
    classes: dict[str, int] = {}
    for part in sorted(parts, key=lambda part: part["host"]):
        for split, content in part["splits"].items():
            splits.setdefault(split, []).extend(
                Shard(name=s["name"], size_bytes=s["bytes"], samples=s["samples"], sha256=s["sha256"])
                for s in content["shards"]
            )
        for total, counts in ((skipped, part["skipped"]), (treated, part["treated"])):
            for word, count in counts.items():
                total[word] = total.get(word, 0) + count
        classes.update(part["classes"])
    by_number = dict(sorted(classes.items(), key=lambda item: (item[1], item[0])))
    return Manifest(splits=splits, classes=by_number, skipped=skipped, treated=treated, **facts)
