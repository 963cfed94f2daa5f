"""Make shards ahead of training: a shared-nothing map with one process for each vCPU.

Runs in a SageMaker Processing container and as `python -m airflow_smd.container.preprocess`. Standard library
only at import, Python 3.9. Each host reads its own input files and knows nothing of the others. What it
writes depends on its files, the transform and the seed, never on the number of processes.

Limits: a file is read by one process, so a single huge file uses one core; about 300 bytes of memory are
needed for each sample of a host; disk space for the input and twice the output.
"""

from __future__ import annotations

import argparse
import errno
import json
import math
import multiprocessing
import os
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from .mapping import SPLITS, InputFile, Job, Mapped, PreprocessError, chunks, input_files, map_chunk, start
from .samples import Bad
from .sharding import Piece, TooFewSamples, deal, shard_count, shard_name, write_shard

_LINES_SECONDS = 5.0
_LISTED_BAD = 1000
_LISTED_CLASSES = 100_000


class Place(NamedTuple):
    """Where one host works."""

    source: Path
    output: Path
    host: int = 0
    hosts: int = 1
    processes: int = 1

    @property
    def spool(self) -> str:
        """Return the directory of half-finished work, on the volume of the output."""
        return str(self.output / f".spool-{self.host}")

    @property
    def part(self) -> Path:
        """Return the file of this host's partial manifest."""
        return self.output / "parts" / f"part-{self.host}of{self.hosts}.json"


def run(job: Job, place: Place) -> dict[str, Any]:
    """Do one host's share; return its partial manifest, which is written last."""
    files = input_files(place.source)
    if not files:
        raise PreprocessError(f"host {place.host} of {place.hosts} got no input file under {place.source}")
    place.part.unlink(missing_ok=True)
    shutil.rmtree(place.spool, ignore_errors=True)
    job.transformer()  # a missing package or function is named before any work
    # spawn: no lock or open file of this process is inherited in an undefined state
    pool = ProcessPoolExecutor(
        place.processes,
        multiprocessing.get_context("spawn"),
        initializer=start,
        initargs=(job, place.spool),
    )
    try:
        mapped = _map(pool, files, job, place)
        part = _write(pool, mapped, job, place)
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        shutil.rmtree(place.spool, ignore_errors=True)
    place.part.parent.mkdir(parents=True, exist_ok=True)
    place.part.write_text(json.dumps(part, indent=1, sort_keys=True))
    return part


def _map(pool: ProcessPoolExecutor, files: Sequence[InputFile], job: Job, place: Place) -> Mapped:
    """Map every file, say how far it is, and stop at the quota of bad samples."""
    total = Mapped()
    began = said = time.monotonic()
    for future in as_completed([pool.submit(map_chunk, task) for task in chunks(files, place.processes)]):
        total.add(future.result())
        if len(total.bad) > job.bad_allowed:
            raise PreprocessError(_too_many_bad(total.bad, job))
        now = time.monotonic()
        if total.files == len(files) or now - said >= _LINES_SECONDS:
            said, seconds = now, max(now - began, 1e-9)
            left = seconds * (len(files) / total.files - 1)
            rate = f"{total.samples} samples, {total.samples / seconds:.0f} a second, {left:.0f} s left"
            print(f"{total.files}/{len(files)} files, {rate}", flush=True)
    return total


def _too_many_bad(bad: Sequence[Bad], job: Job) -> str:
    first = min(bad)
    allowed = (
        f"more than max_bad={job.bad_allowed} bad samples on this host"
        if job.bad_allowed
        else "a bad sample (transform.on_bad is 'fail'; 'skip' would count it and leave it out)"
    )
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{allowed}: {first.source}: {first.message} [{first.reason}]{more}"


def _write(pool: ProcessPoolExecutor, mapped: Mapped, job: Job, place: Place) -> dict[str, Any]:
    """Deal the samples, write the shards in parallel, and return the partial manifest."""
    splits = {}
    for split in SPLITS if job.validation_fraction > 0 else SPLITS[:1]:
        shards = list(pool.map(write_shard, _dealt(mapped.pieces[split], split, job, place)))
        totals = {field: sum(shard[field] for shard in shards) for field in ("bytes", "samples")}
        splits[split] = {"shards": shards, **totals}
        print(
            f"{split}: {len(shards)} shards, {totals['samples']} samples, {totals['bytes']} bytes", flush=True
        )
    return {
        "fingerprint": job.fingerprint,
        "host": place.host,
        "hosts": place.hosts,
        "splits": splits,
        "classes": mapped.classes if len(mapped.classes) <= _LISTED_CLASSES else {},
        "skipped": dict(sorted(Counter(bad.reason for bad in mapped.bad).items())),
        "skipped_samples": [bad._asdict() for bad in sorted(mapped.bad)[:_LISTED_BAD]],
        "treated": mapped.treated,
        "schema": mapped.schema,
        "source": {
            "files": mapped.files,
            "bytes": mapped.size_bytes,
            "check": f"{mapped.check % 2**64:016x}",
        },
    }


def _dealt(
    pieces: Sequence[Piece], split: str, job: Job, place: Place
) -> list[tuple[str, str, Sequence[Piece]]]:
    _refuse_twins(pieces)
    try:
        count = shard_count(
            len(pieces),
            sum(piece.size_bytes for piece in pieces),
            multiple=math.lcm(*job.world_sizes),
            shard_bytes=job.shard_bytes,
            split=split,
        )
    except TooFewSamples as error:
        raise PreprocessError(str(error)) from None
    return [
        (str(place.output), shard_name(split, number, place.host, place.hosts), pile)
        for number, pile in enumerate(deal(pieces, count))
    ]


def _refuse_twins(pieces: Sequence[Piece]) -> None:
    """Refuse two samples of one key: a reader would take them for one."""
    seen: set[bytes] = set()
    for piece in pieces:
        if piece.order in seen:
            with Path(piece.spool).open("rb") as spool:
                spool.seek(piece.offset)
                name = spool.read(100).rstrip(b"\0").decode(errors="replace")
            raise PreprocessError(
                f"two samples have the key of {name!r}: two inputs that differ in their extension only, tar "
                "files with the same keys (set transform.keys to 'prefix'), or a transform that repeats a key"
            )
        seen.add(piece.order)


def explain(error: BaseException) -> str:
    """Return one line that names the object and the fix, for whoever reads the failure."""
    if isinstance(error, PreprocessError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return f"there is no Python module {error.name!r}: use an image that has it, or name another module"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full: raise job.volume_gb, or use more instances"
    if isinstance(error, (MemoryError, BrokenProcessPool)):
        return (
            "a worker process died, most likely out of memory: use an instance with more memory for each vCPU"
        )
    trace = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(trace[-1].filename).name} line {trace[-1].lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{where}"


def main(argv: Sequence[str] | None = None) -> int:
    """Preprocess a local directory, as one host, and seal the output with a manifest."""
    parser = argparse.ArgumentParser(prog="preprocess", description=main.__doc__)
    parser.add_argument("--input", type=Path, required=True, help="directory of input files")
    parser.add_argument("--output", type=Path, required=True, help="directory for shards and manifest")
    parser.add_argument("--transform", default="copy", help="a kind of transform, or JSON with its options")
    parser.add_argument("--world-sizes", default="1", help="such as 1,2,8")
    parser.add_argument("--validation-fraction", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard-bytes", type=int, default=128 * 2**20)
    parser.add_argument("--code", type=Path, help="directory with the module of the transform `function`")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args(argv)
    transform = json.loads(args.transform) if args.transform.startswith("{") else {"kind": args.transform}
    if args.code:
        sys.path.insert(0, str(args.code.resolve()))
    job = Job(
        transform=transform,
        world_sizes=[int(size) for size in args.world_sizes.split(",")],
        validation_fraction=args.validation_fraction,
        seed=args.seed,
        shard_bytes=args.shard_bytes,
        classes=None if transform["kind"] == "tabular" else _directory_classes(args.input),
    )
    seal = args.output / "manifest.json"
    seal.unlink(missing_ok=True)
    try:
        part = run(job, Place(args.input, args.output, processes=args.processes))
    except Exception as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 1
    own = {"version": 1, "uri": str(args.output), "format": "webdataset", "transform": transform}
    seal.write_text(json.dumps({**part, **own, "world_sizes": job.world_sizes}, indent=1, sort_keys=True))
    return 0


def _directory_classes(source: Path) -> list[str]:
    parents = {file.name.rpartition("/")[0].rpartition("/")[2] for file in input_files(source)}
    return sorted(parents - {""})


def run_in_container(code: Path) -> int:
    """Do this host's share of a SageMaker Processing job, whose code and `job.json` lie in `code`.

    The other places follow from `code`, as SageMaker lays them out below /opt/ml. What went wrong becomes the
    job's ExitMessage.
    """
    processing, ml = code.parents[1], code.parents[2]
    resources = json.loads((ml / "config" / "resourceconfig.json").read_text())
    hosts = sorted(resources["hosts"], key=lambda name: (len(name), name))
    sys.path[1:1] = [str(code / "user.zip")]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    place = Place(
        source=processing / "input" / "data",
        output=processing / "output",
        host=hosts.index(resources["current_host"]),
        hosts=len(hosts),
        processes=len(os.sched_getaffinity(0)),
    )
    try:
        run(Job(**json.loads((code / "job.json").read_text())), place)
    except Exception as error:
        traceback.print_exc()
        text = f"{resources['current_host']}: {explain(error)}\n"
        print(f"error: {text}", file=sys.stderr)
        message = ml / "output" / "message"
        message.parent.mkdir(parents=True, exist_ok=True)
        message.write_bytes(text.encode()[:1000].decode(errors="ignore").encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
