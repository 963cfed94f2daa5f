"""Map input files to encoded samples: what one process does, alone.

Runs in the container: standard library only at import, Python 3.9.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from .samples import Bad, Sample, shuffle_hash, split_of, tar_bytes
from .sharding import Piece, Spool
from .transforms import TRANSFORMS

SPLITS = ("train", "validation")
_CHUNK_BYTES = 8 * 10**6
_CHUNK_FILES = 256


class PreprocessError(Exception):
    """The work cannot be done; the message names the object and what to do."""


class Job(NamedTuple):
    """What to make; the same on every host."""

    transform: dict[str, Any]
    """`kind`, that transform's own options, and `on_bad` (`fail`, `skip`) with `max_bad` for each host."""
    world_sizes: Sequence[int] = (1,)
    validation_fraction: float = 0.0
    seed: int = 0
    shard_bytes: int = 128 * 2**20
    classes: Sequence[str] | None = None
    """Every class of the data set, in order; None where the data do not tell it by directory."""
    fingerprint: str = ""

    @property
    def bad_allowed(self) -> int:
        """Return how many bad samples a host may skip."""
        return int(self.transform.get("max_bad", 100)) if self.transform.get("on_bad") == "skip" else 0

    def transformer(self) -> Any:
        """Return the transform, ready; ImportError or TypeError where it cannot be."""
        options = {k: v for k, v in self.transform.items() if k not in ("kind", "on_bad", "max_bad")}
        if self.classes is not None:
            options.setdefault("classes", self.classes)
        return TRANSFORMS[self.transform["kind"]](**options)


class InputFile(NamedTuple):
    """One file of this host's share."""

    path: str
    name: str
    """Relative to the input's root, with slashes."""
    size_bytes: int

    @property
    def check(self) -> int:
        """Return a number whose sum over all files tells whether each was read once."""
        text = f"{self.name}\0{self.size_bytes}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


class Mapped:
    """What files became: where their samples lie, and what was seen on the way."""

    def __init__(self) -> None:
        self.pieces: dict[str, list[Piece]] = {split: [] for split in SPLITS}
        self.bad: list[Bad] = []
        self.treated: dict[str, int] = {}
        self.classes: dict[str, int] = {}
        self.schema: dict[str, Any] = {}
        self.files = self.size_bytes = self.check = 0

    def add(self, other: Mapped) -> None:
        """Take in what another chunk became; PreprocessError if the two do not fit together."""
        if self.schema and other.schema and self.schema != other.schema:
            raise PreprocessError(f"input files differ: some have {self.schema}, others {other.schema}")
        self.schema = self.schema or other.schema
        for split in SPLITS:
            self.pieces[split] += other.pieces[split]
        self.bad += other.bad
        self.classes.update(other.classes)
        for word, count in other.treated.items():
            self.treated[word] = self.treated.get(word, 0) + count
        self.files += other.files
        self.size_bytes += other.size_bytes
        self.check += other.check

    @property
    def samples(self) -> int:
        """Return the samples of all splits."""
        return sum(map(len, self.pieces.values()))


class Mapper:
    """One process's transform and spool."""

    def __init__(self, job: Job, spool: str) -> None:
        self._job = job
        self._spool = Spool(spool)

    def __call__(self, files: Sequence[InputFile]) -> Mapped:
        """Map a chunk of files; stop early once there are more bad samples than a host may skip."""
        transform: Any = self._job.transformer()
        mapped = Mapped()
        for file in files:
            for sample in transform(Path(file.path), file.name):
                self._keep(sample, file.name, mapped)
                if len(mapped.bad) > self._job.bad_allowed:
                    return mapped
            mapped.files += 1
            mapped.size_bytes += file.size_bytes
            mapped.check += file.check
        self._spool.flush()
        mapped.treated, mapped.classes = dict(transform.treated), transform.seen
        mapped.schema = transform.schema
        return mapped

    def _keep(self, sample: Sample | Bad, name: str, mapped: Mapped) -> None:
        if isinstance(sample, Bad):
            mapped.bad.append(sample)
            return
        key = sample["__key__"]
        try:
            data = tar_bytes(sample)
        except (TypeError, ValueError) as error:
            mapped.bad.append(Bad(f"{name} sample {key}", "not-encodable", str(error)))
            return
        split = split_of(key, self._job.validation_fraction)
        mapped.pieces[split].append(self._spool.add(shuffle_hash(key, self._job.seed), data))


def is_data(name: str) -> bool:
    """Say whether an input counts: not `_SUCCESS`, `.DS_Store` and the like."""
    base = name.rpartition("/")[2]
    return bool(base) and not base.startswith((".", "_"))


def input_files(source: Path) -> list[InputFile]:
    """Return this host's files, in the order of their names."""
    found = []
    for path in source.rglob("*"):
        name = path.relative_to(source).as_posix()
        if path.is_file() and is_data(name):
            found.append(InputFile(str(path), name, path.stat().st_size))
    return sorted(found, key=lambda file: file.name)


def chunks(files: Sequence[InputFile], processes: int) -> Iterator[list[InputFile]]:
    """Cut the files into tasks: enough to keep every process busy, few enough to cost nothing."""
    limit = min(_CHUNK_BYTES, sum(file.size_bytes for file in files) / (4 * processes))
    chunk: list[InputFile] = []
    size_bytes = 0
    for file in files:
        chunk.append(file)
        size_bytes += file.size_bytes
        if size_bytes >= limit or len(chunk) >= _CHUNK_FILES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


_mapper: Mapper | None = None


def start(job: Job, spool: str) -> None:
    """Make this process ready for `map_chunk`."""
    global _mapper
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _mapper = Mapper(job, spool)


def _end_with_parent() -> None:
    """End when the parent has died: a pool's process would wait for its next task for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def map_chunk(files: Sequence[InputFile]) -> Mapped:
    """Map a chunk in a process that was started."""
    assert _mapper is not None  # noqa: S101  # `start` is the pool's initializer
    return _mapper(files)
