"""From encoded samples to shards that feed every rank alike.

Runs in the container: standard library only, Python 3.9. Each host deals its own samples, so it writes, for
each split, a multiple of every world size. As every rank then reads the same number of shards of each host,
the ranks are balanced whatever the hosts' shares were.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from .samples import BLOCK


class TooFewSamples(ValueError):
    """A split has fewer samples than the shards that the world sizes demand."""


class Piece(NamedTuple):
    """One encoded sample in a spool file."""

    order: bytes
    """Where the sample stands in the shuffled order."""
    spool: str
    offset: int
    size_bytes: int


def shard_count(samples: int, size_bytes: int, *, multiple: int, shard_bytes: int, split: str) -> int:
    """Return how many shards to write: near `shard_bytes` each, a multiple of `multiple`, none empty."""
    if samples < multiple:
        raise TooFewSamples(
            f"{split} has {samples} samples on this host, but the world sizes ask for {multiple} shards: "
            "use fewer instances or smaller world_sizes"
            + (", or another validation_fraction (0 for none)" if split == "validation" else "")
        )
    wanted = max(1, round(size_bytes / shard_bytes / multiple))
    return multiple * min(wanted, samples // multiple)


def deal(pieces: Sequence[Piece], shards: int) -> list[list[Piece]]:
    """Deal the pieces to shards: sample counts differ by at most one, bytes by about one small sample.

    Largest first, a round at a time, the largest of a round to the lightest shard. The round that is left
    over goes to the first shards, so that it spreads over the ranks (position modulo world size). Within a
    shard the order is the shuffled one. The result depends on the pieces only, not on their order here.
    """
    ranked = sorted(pieces, key=lambda piece: (-piece.size_bytes, piece.order))
    load = [0] * shards
    dealt: list[list[Piece]] = [[] for _ in range(shards)]
    for start in range(0, len(ranked), shards):
        hand = ranked[start : start + shards]
        lightest = sorted(range(len(hand)), key=lambda shard: (load[shard], shard))
        for piece, shard in zip(hand, lightest):  # noqa: B905  # strict is Python 3.10's
            dealt[shard].append(piece)
            load[shard] += piece.size_bytes
    for pile in dealt:
        pile.sort(key=lambda piece: piece.order)
    return dealt


def shard_name(split: str, number: int, host: int, hosts: int) -> str:
    """Return a name that no other layout uses, so that runs on other instance counts never overwrite it."""
    layout = f"{host}of{hosts}-" if hosts > 1 else ""
    return f"{split}/shard-{layout}{number:06d}.tar"


def write_shard(task: tuple[str, str, Sequence[Piece]]) -> dict[str, Any]:
    """Write (directory, name, pieces) as a tar that appears whole or not at all; return its manifest row."""
    directory, name, pieces = task
    path = Path(directory) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    digest, size_bytes = sha256(), 0
    spools: dict[str, int] = {}
    try:
        with partial.open("wb") as target:
            for piece in pieces:
                if piece.spool not in spools:
                    spools[piece.spool] = os.open(piece.spool, os.O_RDONLY)
                data = os.pread(spools[piece.spool], piece.size_bytes, piece.offset)
                target.write(data)
                digest.update(data)
                size_bytes += len(data)
            end = b"\0" * (2 * BLOCK)
            target.write(end)
            digest.update(end)
        partial.replace(path)
    finally:
        for spool in spools.values():
            os.close(spool)
    return {
        "name": name,
        "bytes": size_bytes + 2 * BLOCK,
        "samples": len(pieces),
        "sha256": digest.hexdigest(),
    }


class Spool:
    """One process's file of encoded samples."""

    def __init__(self, directory: str) -> None:
        Path(directory).mkdir(parents=True, exist_ok=True)
        self.path = str(Path(directory) / f"{os.getpid()}.spool")
        self._file = Path(self.path).open("ab")  # noqa: SIM115  # open as long as the process

    def add(self, order: bytes, data: bytes) -> Piece:
        """Append one encoded sample."""
        piece = Piece(order, self.path, self._file.tell(), len(data))
        self._file.write(data)
        return piece

    def flush(self) -> None:
        """Make what was added readable for other processes."""
        self._file.flush()
