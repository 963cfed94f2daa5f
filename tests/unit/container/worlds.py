"""Real processes that play the ranks of one job on this machine."""

import multiprocessing
import socket
import traceback
from collections.abc import Callable
from typing import Any

FORK = multiprocessing.get_context("fork")
LIMIT_SECONDS = 60


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _play(act: Callable[[dict[str, str]], Any], env: dict[str, str], answer: Any) -> None:
    try:
        answer.send(act(env))
    except Exception as error:
        answer.send((type(error).__name__, str(error)))
        traceback.print_exc()


def play(act: Callable[[dict[str, str]], Any], environments: list[dict[str, str]]) -> list[Any]:
    """Call `act` in a process for each environment; return what each returned, `(type, text)` of its error,
    or None if it died.
    """
    ends = []
    for env in environments:
        here, there = FORK.Pipe(duplex=False)
        process = FORK.Process(target=_play, args=(act, env, there))
        process.start()
        there.close()
        ends.append((process, here))
    answers = []
    for process, here in ends:
        try:
            answers.append(here.recv() if here.poll(LIMIT_SECONDS) else "still running")
        except EOFError:
            answers.append(None)
        process.kill()
        process.join()
    return answers


def play_world(act: Callable[[dict[str, str]], Any], size: int) -> list[Any]:
    port = free_port()
    return play(act, [environment(rank, size, port) for rank in range(size)])
