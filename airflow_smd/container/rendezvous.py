"""Which rank this process is, and how the ranks of a training job find each other.

Every rank tells rank 0 where it listens, rank 0 tells everyone, and each connects to the next: a ring.

Python 3.9 and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass


class RanksMissing(RuntimeError):
    """Not every rank came to the meeting point in time; the message names those that did not."""


class RankLost(RuntimeError):
    """A rank ended, or sent nothing for too long, while others counted on it."""


@dataclass(frozen=True)
class Place:
    """Which process of the job this is, and where its rank 0 can be met."""

    rank: int
    world_size: int
    local_rank: int
    master_addr: str
    master_port: int
    job: str
    """Keeps two jobs on one machine apart."""


def place(environment: Mapping[str, str] | None = None) -> Place:
    """Return this process's place as its launcher wrote it into the environment.

    In this order: `RANK` and `WORLD_SIZE` (torchrun, SMDDP), `OMPI_COMM_WORLD_*` (mpirun), `SM_HOSTS` with
    one process on each host (SageMaker without a launcher), or one process alone.
    """
    env = os.environ if environment is None else environment
    hosts = json.loads(env.get("SM_HOSTS") or "[]")
    job = json.loads(env.get("SM_TRAINING_ENV") or "{}").get("job_name") or ""
    if "RANK" in env or "WORLD_SIZE" in env:
        rank, size, local = (_number(env, name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    elif "OMPI_COMM_WORLD_SIZE" in env:
        rank, size, local = (
            _number(env, f"OMPI_COMM_WORLD_{name}") for name in ("RANK", "SIZE", "LOCAL_RANK")
        )
    elif len(hosts) > 1:
        rank, size, local = hosts.index(env["SM_CURRENT_HOST"]), len(hosts), 0
    else:
        rank, size, local = 0, 1, 0
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} of {size} ranks: a rank is 0 to world size - 1")
    port = _number(env, "MASTER_PORT") if env.get("MASTER_PORT") else 20000 + _digest(job)[0] * 32
    if env.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        port += 1  # torchrun's own store listens at MASTER_PORT
    address = env.get("MASTER_ADDR") or (hosts[0] if hosts else "127.0.0.1")
    return Place(rank, size, local, address, port, job)


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "0" if name.endswith("LOCAL_RANK") else "")
    if not text.isdigit():
        raise ValueError(f"{name}={text!r} in the environment: a launcher sets it to a whole number")
    return int(text)


def _digest(job: str) -> bytes:
    return hashlib.sha256(job.encode()).digest()[:16]


_HELLO = struct.Struct("!8s16sIIH")
_MAGIC = b"smd-ring"


def meet(own: Place, timeout_seconds: float) -> tuple[socket.socket, socket.socket]:
    """Return the connections to the next and from the previous rank."""
    deadline = time.monotonic() + timeout_seconds
    with contextlib.ExitStack() as stack:
        if own.rank == 0:
            listener, table = _host_meeting(own, deadline, timeout_seconds, stack)
        else:
            listener, table = _attend_meeting(own, deadline, timeout_seconds, stack)
        after = (own.rank + 1) % own.world_size
        before = (own.rank - 1) % own.world_size
        try:
            forward = socket.create_connection(table[after], timeout=timeout_seconds)
            forward.sendall(_hello(own, 0))
        except OSError as error:
            raise RankLost(f"rank {after} cannot be reached at {table[after]}: {error}") from error
        for connection, rank, _, _ in _visitors(listener, own, time.monotonic() + timeout_seconds):
            if rank == before:
                return forward, connection
            connection.close()
        forward.close()
        raise RankLost(f"rank {before} did not connect to rank {own.rank} within {timeout_seconds:g} s")


def _hello(own: Place, port: int) -> bytes:
    return _HELLO.pack(_MAGIC, _digest(own.job), own.rank, own.world_size, port)


def _listen(host: str, port: int, backlog: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=backlog)


def _visitors(
    server: socket.socket, own: Place, deadline: float
) -> Iterator[tuple[socket.socket, int, int, int]]:
    """Yield connection, rank, world size and port of whoever of this job knocks, until `deadline`."""
    while (left := deadline - time.monotonic()) > 0:
        server.settimeout(left)
        try:
            connection, _ = server.accept()
        except OSError:
            return
        connection.settimeout(min(5.0, left))
        try:
            hello = connection.recv(_HELLO.size, socket.MSG_WAITALL)
        except OSError:
            hello = b""
        if len(hello) == _HELLO.size:
            magic, digest, rank, world_size, port = _HELLO.unpack(hello)
            if (magic, digest) == (_MAGIC, _digest(own.job)):
                yield connection, rank, world_size, port
                continue
        connection.close()  # a stranger, or another job's rank


def _host_meeting(
    own: Place, deadline: float, timeout_seconds: float, stack: contextlib.ExitStack
) -> tuple[socket.socket, list[tuple[str, int]]]:
    where = f"{own.master_addr}:{own.master_port}"
    try:
        server = stack.enter_context(_listen(own.master_addr, own.master_port, own.world_size))
    except OSError as error:
        raise RanksMissing(
            f"rank 0 cannot wait for the others at {where}: {error}. Set MASTER_ADDR to an address of its "
            "own host and MASTER_PORT to a port that is free."
        ) from error
    listener = stack.enter_context(_listen(own.master_addr, 0, 4))
    table = {0: (own.master_addr, listener.getsockname()[1])}
    guests: list[socket.socket] = []
    problem = ""
    for connection, rank, world_size, port in _visitors(server, own, deadline):
        guests.append(stack.enter_context(connection))
        if world_size != own.world_size or rank in table or rank >= world_size:
            problem = (
                f"a process came as rank {rank} of {world_size} to rank 0 of {own.world_size}; present are "
                f"ranks {_ranks(table)}. Every rank needs a RANK of its own and the same WORLD_SIZE."
            )
            break
        table[rank] = (connection.getpeername()[0], port)
        if len(table) == own.world_size:
            break
    missing = [rank for rank in range(own.world_size) if rank not in table]
    if missing and not problem:
        problem = (
            f"rank {_ranks(missing)} of {own.world_size} did not come to {where} within "
            f"{timeout_seconds:g} s. Look at its log, and whether its host may reach this one."
        )
    addresses = [] if problem else [table[rank] for rank in range(own.world_size)]
    answer = json.dumps({"problem": problem, "table": addresses}).encode() + b"\n"
    for guest in guests:
        with contextlib.suppress(OSError):
            guest.sendall(answer)
    if problem:
        raise RanksMissing(problem)
    return listener, addresses


def _ranks(ranks: Iterable[int]) -> str:
    return ", ".join(str(rank) for rank in sorted(ranks))


def _attend_meeting(
    own: Place, deadline: float, timeout_seconds: float, stack: contextlib.ExitStack
) -> tuple[socket.socket, list[tuple[str, int]]]:
    where, reason = f"{own.master_addr}:{own.master_port}", "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((own.master_addr, own.master_port), timeout=left) as master:
                listener = stack.enter_context(_listen(master.getsockname()[0], 0, 4))
                master.sendall(_hello(own, listener.getsockname()[1]))
                # Rank 0 may have begun to wait later than we did.
                master.settimeout(timeout_seconds + 5)
                answer = json.loads(master.makefile().readline() or "{}")
        except (OSError, ValueError) as error:
            reason = str(error)
        else:
            if answer.get("problem"):
                raise RanksMissing(answer["problem"])
            if "table" in answer:
                return listener, [tuple(address) for address in answer["table"]]
            reason = "it closed the connection, as for another job's rank"
        time.sleep(min(0.1, max(0.0, left)))
    raise RanksMissing(
        f"rank 0 did not answer rank {own.rank} of {own.world_size} at {where} within {timeout_seconds:g} s "
        f"({reason}). Look at its log, and whether this host may reach it."
    )
