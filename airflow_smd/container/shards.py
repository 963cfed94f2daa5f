"""Read shards in training: one file, standard library only; copy it beside the training script.

    reader = ShardReader("/opt/ml/input/data/training", rank=rank, world_size=world_size)
    for sample in reader.epoch(3):
        features, label = sample["npy"], int(sample["cls"])   # bytes, as they were written

Every rank reads whole shards, its own ones, and yields exactly as many samples as every other rank.
"""

from __future__ import annotations

import json
import os
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_RANKS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def rank_and_world_size() -> tuple[int, int]:
    """Return this process's rank and the world size from torchrun's, Open MPI's or MPICH's environment."""
    for rank, size in _RANKS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


class ShardReader:
    """The samples of one rank.

    Args:
        root: directory (or channel) that holds `manifest.json`.
        split: `train` or `validation`.
        rank: of this process; default: the environment's.
        world_size: number of processes; must divide the number of shards.
        seed: of the order of shards, which differs from epoch to epoch.
        shuffle: whether that order is shuffled; within a shard the order is the one of preprocessing.
    """

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        *,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        self.root = Path(root)
        environment = rank_and_world_size()
        self.rank = environment[0] if rank is None else rank
        self.world_size = environment[1] if world_size is None else world_size
        self.seed, self.shuffle = seed, shuffle
        self.manifest = self._manifest()
        if split not in self.manifest["splits"]:
            raise ValueError(f"{self.root} has no split {split!r}, only {sorted(self.manifest['splits'])}")
        shards = self.manifest["splits"][split]["shards"]
        if len(shards) % self.world_size or not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"rank {self.rank} of {self.world_size}: {split} has {len(shards)} shards, made for world "
                f"sizes {self.manifest['world_sizes']}; preprocess again with this one among world_sizes"
            )
        self.shards: list[dict[str, Any]] = shards[self.rank :: self.world_size]
        totals = [
            sum(shard["samples"] for shard in shards[r :: self.world_size]) for r in range(self.world_size)
        ]
        self._length: int = min(totals)

    def _manifest(self) -> dict[str, Any]:
        path = self.root / "manifest.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing: it seals a preprocessed data set, so {self.root} is none or incomplete"
            )
        manifest: dict[str, Any] = json.loads(path.read_text())
        return manifest

    def __len__(self) -> int:
        """Return the samples of one epoch, the same on every rank."""
        return self._length

    def order(self, epoch: int) -> list[dict[str, Any]]:
        """Return the rank's shards in the order of this epoch."""
        shards = list(self.shards)
        if self.shuffle:
            random.Random(f"{self.seed} {epoch} {self.rank}").shuffle(shards)  # noqa: S311
        return shards

    def epoch(
        self, epoch: int = 0, position: int = 0, wanted: Callable[[int], bool] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the samples of one epoch from `position`, the number of samples that were consumed before.

        Skipped shards are not opened and skipped samples are not read. `wanted(number)` picks samples by
        their number in the epoch.
        """
        number = 0
        for shard in self.order(epoch):
            first, number = number, number + shard["samples"]
            if number <= position or first >= self._length:
                continue
            for index, read in enumerate(_samples(self.root / shard["name"]), first):
                if index >= self._length:
                    return
                if index >= position and (wanted is None or wanted(index)):
                    yield read()


def _samples(path: Path) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yield, for each sample of a tar, a function that reads it; what is not called for is seeked over."""
    with path.open("rb") as file:
        members: list[tuple[str, str, int, int]] = []
        for member in tarfile.TarFile(fileobj=file):
            folder, slash, base = member.name.rpartition("/")
            stem, _, extension = base.partition(".")
            key = f"{folder}{slash}{stem}"
            if members and members[0][0] != key:
                yield _reader(file, members)
                members = []
            members.append((key, extension, member.offset_data, member.size))
        if members:
            yield _reader(file, members)


def _reader(file: Any, members: list[tuple[str, str, int, int]]) -> Callable[[], dict[str, Any]]:
    def read() -> dict[str, Any]:
        sample: dict[str, Any] = {"__key__": members[0][0]}
        for _, extension, offset, size in members:
            # pread leaves the position alone, from which tarfile goes on
            sample[extension] = os.pread(file.fileno(), size, offset)
        return sample

    return read


def torch_dataset(
    reader: ShardReader,
    decode: Callable[[dict[str, Any]], Any],
    *,
    batch_size: int,
    epoch: int = 0,
    position: int = 0,
) -> Any:
    """Return a PyTorch `IterableDataset` of `decode(sample)` for a `DataLoader` of the same `batch_size`.

    With several workers, each makes whole batches in turn, so the loader gives the same samples in the same
    order for every `num_workers`, every rank gives the same number of batches, and training resumes at
    `position` = batches done × `batch_size`.
    """
    from torch.utils.data import IterableDataset, get_worker_info

    if position % batch_size:
        raise ValueError(f"position {position} is not a multiple of batch_size {batch_size}")

    class ShardDataset(IterableDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return max(0, len(reader) - position)

        def __iter__(self) -> Iterator[Any]:
            info = get_worker_info()
            worker, workers = (info.id, info.num_workers) if info else (0, 1)

            def mine(number: int) -> bool:
                return (number - position) // batch_size % workers == worker

            return map(decode, reader.epoch(epoch, position, mine))

    return ShardDataset()
