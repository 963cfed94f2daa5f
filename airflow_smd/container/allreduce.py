"""Sum, average and broadcast numpy arrays over the processes of a training job, on one host or many.

    with allreduce.join() as group:
        gradient = group.mean(gradient)

Under Open MPI with mpi4py this is MPI's own Allreduce. Elsewhere it is a ring over TCP: reduce-scatter, then
all-gather, so that a rank sends and receives 2 (n - 1) / n of the array however many ranks there are. Every
rank receives the same bits. A single process needs no network. It is for CPU trainings and small models;
GPUs want NCCL or SMDDP.

Nothing is encrypted: like MPI and NCCL, it belongs on the private network of one job.

Python 3.9 and numpy; `rendezvous.py` beside it.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from .rendezvous import Place, RankLost, RanksMissing, meet, place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["Group", "Place", "RankLost", "RanksDisagree", "RanksMissing", "join", "place"]


class RanksDisagree(RuntimeError):
    """Two ranks are not doing the same thing: another operation, type or size."""


def join(timeout_seconds: float = 300.0, environment: Mapping[str, str] | None = None) -> Group:
    """Meet the other ranks of this job and return the group of all, once every rank is there.

    `timeout_seconds` is how long to wait for a rank: here, and later for one that sends nothing.
    """
    own = place(environment)
    if own.world_size == 1:
        return Group(own)
    if "OMPI_COMM_WORLD_SIZE" in (os.environ if environment is None else environment):
        with contextlib.suppress(ImportError, RuntimeError):  # RuntimeError: it finds no MPI library
            from mpi4py import MPI

            # An mpi4py made for another MPI than mpirun's starts a world of one for each process.
            if MPI.COMM_WORLD.Get_size() == own.world_size:
                return _MpiGroup(own, MPI.COMM_WORLD)
    return _RingGroup(own, timeout_seconds)


class Group:
    """All ranks of a job. This base is the group of one."""

    def __init__(self, own: Place) -> None:
        self.rank, self.world_size, self.local_rank = own.rank, own.world_size, own.local_rank

    def sum(self, array: Array) -> Array:
        """Return the sum over all ranks, bit by bit the same on each; `array` stays as it is."""
        return self._sum(_own_copy(array, "iufc"))

    def mean(self, array: Array) -> Array:
        """Return the mean over all ranks of an array of floats."""
        total: Array = self._sum(_own_copy(array, "fc"))
        total /= self.world_size
        return total

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """Return the array of rank `root`; the others pass one of the same shape and type."""
        return self._broadcast(_own_copy(array, "biufc"), root)

    def barrier(self) -> None:
        """Return once every rank has called this."""
        import numpy as np

        self._sum(np.zeros(1, np.int32))

    def close(self) -> None:
        """Leave the group; call it on every rank after the last operation."""

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        self.close()

    def _sum(self, array: Array) -> Array:
        return array

    def _broadcast(self, array: Array, _root: int) -> Array:
        return array


def _own_copy(array: Array, kinds: str) -> Array:
    import numpy as np

    copy = np.array(array, order="C")
    if copy.dtype.kind not in kinds:
        allowed = "floats" if kinds == "fc" else "numbers"
        raise TypeError(f"an array of {copy.dtype}: this operation takes {allowed}")
    return copy


class _MpiGroup(Group):
    def __init__(self, own: Place, communicator: Any) -> None:
        super().__init__(own)
        self._communicator = communicator
        self.rank = communicator.Get_rank()

    def _sum(self, array: Array) -> Array:
        total = array.copy()
        self._communicator.Allreduce(array, total)
        return total

    def _broadcast(self, array: Array, root: int) -> Array:
        self._communicator.Bcast(array, root)
        return array

    def __exit__(self, kind: object, error: object, _trace: object) -> None:
        failed = error.code not in (None, 0) if isinstance(error, SystemExit) else kind is not None
        if failed:
            # Without this the failed rank waits in MPI_Finalize and the others in Allreduce, for ever.
            traceback.print_exc()
            self._communicator.Abort(1)


_HEADER = struct.Struct("!B4sQ")
"""Before each message: what it is, the array's type, and its bytes or, for a loss, the rank."""
_SUM, _BROADCAST, _LOST = 1, 2, 3
_VERBS = {_SUM: "sums", _BROADCAST: "broadcasts"}
_PIECE_BYTES = 1 << 20


class _RingGroup(Group):
    def __init__(self, own: Place, timeout_seconds: float) -> None:
        super().__init__(own)
        self._timeout_seconds = timeout_seconds
        self._next_rank = (own.rank + 1) % own.world_size
        self._previous_rank = (own.rank - 1) % own.world_size
        self._next, self._previous = meet(own, timeout_seconds)
        for end in (self._next, self._previous):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._next.close()
        self._previous.close()

    def _sum(self, array: Array) -> Array:
        import numpy as np

        flat, size = array.reshape(-1), self.world_size
        bounds = [flat.size * part // size for part in range(size + 1)]
        parts = [flat[bounds[part] : bounds[part + 1]] for part in range(size)]
        head = _HEADER.pack(_SUM, array.dtype.str.encode(), array.nbytes)
        received = np.empty(max(part.size for part in parts), array.dtype)
        for step in range(size - 1):
            into = parts[(self.rank - step - 1) % size]
            self._exchange(head, parts[(self.rank - step) % size], received[: into.size])
            into += received[: into.size]
        for step in range(size - 1):
            self._exchange(head, parts[(self.rank - step + 1) % size], parts[(self.rank - step) % size])
        return array

    def _broadcast(self, array: Array, root: int) -> Array:
        import numpy as np

        place_in_line = (self.rank - root) % self.world_size
        head = _HEADER.pack(_BROADCAST, array.dtype.str.encode(), array.nbytes)
        raw = array.reshape(-1).view(np.uint8)
        for start in range(0, raw.size, _PIECE_BYTES):
            piece = raw[start : start + _PIECE_BYTES]
            if place_in_line > 0:
                self._exchange(head, None, piece)
            if place_in_line < self.world_size - 1:
                self._exchange(head, piece, None)
        return array

    def _exchange(self, head: bytes, outgoing: Array | None, incoming: Array | None) -> None:
        """Send to the next rank and receive from the previous one at the same time."""
        got_head = bytearray(_HEADER.size)
        out = [] if outgoing is None else [memoryview(head), _bytes_of(outgoing)]
        into = [] if incoming is None else [memoryview(got_head), _bytes_of(incoming)]
        next_is_gone = False
        while out or into:
            ready = self._ready(bool(out), bool(into))
            # First say what we do, then look at what the others do: so both sides of a mix-up can tell.
            if self._next.fileno() in ready:
                next_is_gone = not self._send(out)
            if self._previous.fileno() in ready:
                waited_for_head = len(into) == 2
                self._receive(into)
                if waited_for_head and len(into) < 2:
                    self._check(head, bytes(got_head))
        if next_is_gone:  # told only now, since the previous rank may have known better why
            self._fail(self._next_rank, "ended or lost its network")

    def _ready(self, sending: bool, receiving: bool) -> list[int]:
        poll = select.poll()
        if sending:
            poll.register(self._next, select.POLLOUT)
        if receiving:
            poll.register(self._previous, select.POLLIN)
        ready = poll.poll(self._timeout_seconds * 1000)
        if not ready:
            silent = self._previous_rank if receiving else self._next_rank
            self._fail(silent, f"sent and took nothing for {self._timeout_seconds:g} s")
        return [descriptor for descriptor, _ in ready]

    def _receive(self, into: list[memoryview]) -> None:
        try:
            count = self._previous.recv_into(into[0])
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count == 0:
            self._fail(self._previous_rank, "ended or lost its network")
        _advance(into, count)

    def _send(self, out: list[memoryview]) -> bool:
        """Send what goes; return False, and give up on the rest, if the next rank is gone."""
        try:
            _advance(out, self._next.sendmsg(out))
        except BlockingIOError:
            return True
        except OSError:
            out.clear()
            return False
        return True

    def _check(self, ours: bytes, theirs: bytes) -> None:
        if ours == theirs:
            return
        (kind, dtype, count), (own_kind, own_dtype, own_count) = _HEADER.unpack(theirs), _HEADER.unpack(ours)
        if kind == _LOST:
            self._fail(count, f"ended or is stuck, says rank {self._previous_rank}")
        raise RanksDisagree(
            f"rank {self._previous_rank} {_VERBS.get(kind, 'sends nonsense')} {count} bytes of "
            f"{_type(dtype)} while rank {self.rank} {_VERBS[own_kind]} {own_count} bytes "
            f"of {_type(own_dtype)}: every rank must call the same operations in the same order"
        )

    def _fail(self, rank: int, why: str) -> NoReturn:
        """Tell the next rank which one is lost, so that every log names the right one."""
        with contextlib.suppress(OSError):
            self._next.send(_HEADER.pack(_LOST, b"", rank))
        self.close()
        raise RankLost(f"rank {rank} of {self.world_size} {why} (seen by rank {self.rank})")


def _type(dtype: bytes) -> str:
    return dtype.rstrip(b"\0").decode(errors="replace")


def _bytes_of(array: Array) -> memoryview:
    import numpy as np

    return array.view(np.uint8).data


def _advance(buffers: list[memoryview], count: int) -> None:
    """Drop the first `count` bytes, and buffers that are through, empty ones too."""
    while buffers and count >= len(buffers[0]):
        count -= len(buffers.pop(0))
    if buffers:
        buffers[0] = buffers[0][count:]
