"""Lines of a job's hosts and of Airflow's tasks: who wrote them, and what went wrong first."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

LATE_SECONDS = 20.0
"""How much later than a younger line of another host a line may reach CloudWatch and still be shown."""
SHAPES = 10_000
"""How many different lines are remembered per job, so that a chatty one does not fill the triggerer."""
FIRST_HOST = "algo-1"
"""SageMaker's name of the host whose launcher writes for rank 0."""
_NUMBER = re.compile(r"0x[0-9a-f]+|\d[\d.]*(?:e[-+]?\d+)?")
_RANK = re.compile(r"^\[\d+,(?:mpirank:)?(?P<rank>\d+)(?:,[^\]]*)?\]<std(?:out|err)>:\s?")
"""What mpirun's --tag-output and the training toolkit put before a line: `[1,mpirank:3,algo-2]<stdout>:`."""
_ERROR = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*:|^Traceback \(most recent call last\)"
)
_LAUNCHER = re.compile(r"MPI_ABORT|mpirun|orted|ExecuteUserScriptError|Command \"|sagemaker-training-toolkit")
"""The launcher's echo of an error that a rank had before."""
_TRACEBACK = "Traceback (most recent call last):"
_LOG_LINE = re.compile(r"^\[?\d{4}-\d\d-\d\dT")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of one host."""

    host: str
    """`algo-1` and so on."""
    at: float
    """Unix time."""
    text: str
    id: str = ""
    """CloudWatch's name of the line, where it gives one: several lines may have one time."""


class LogNews:
    """What of a job's log is new, and what of that is worth a line in the task log.

    Args:
        since: Unix time from which lines count.
        ids: lines of that very time which were shown before.
    """

    def __init__(self, *, since: float, ids: Collection[str] = ()) -> None:
        self._from = self._newest = since
        self._seen = dict.fromkeys(ids, since)
        self._shapes: set[str] = set()

    @property
    def since(self) -> float:
        """Return the time from which to read: lines of other hosts may come in late."""
        return max(self._from, self._newest - LATE_SECONDS)

    @property
    def cursor(self) -> dict[str, Any]:
        """Return the arguments, as JSON, with which another process goes on after the newest line."""
        return {"since": self._newest, "ids": [name for name, at in self._seen.items() if at == self._newest]}

    def shown(self, lines: Iterable[LogLine]) -> list[str]:
        """Return rank 0's new lines, what other ranks say that rank 0 does not, and a count of the rest."""
        fresh = [line for line in lines if line.at >= self._from and line.id not in self._seen]
        self._newest = max([self._newest, *(line.at for line in fresh)])
        self._seen |= {line.id: line.at for line in fresh if line.id}
        # a second more, since a difference of times may be a hair larger than the line's own time
        self._seen = {name: at for name, at in self._seen.items() if at >= self.since - 1}
        return self._told(sorted(fresh, key=lambda line: line.at))

    def _told(self, lines: Sequence[LogLine]) -> list[str]:
        ranked = [(line.host, *rank_and_text(line.text)) for line in lines]
        if len(self._shapes) > SHAPES:
            self._shapes.clear()
        self._shapes |= {_shape(text) for host, rank, text in ranked if _writes_for_rank_0(host, rank)}
        told: list[str] = []
        repeating: list[tuple[str, int | None]] = []
        for host, rank, text in ranked:
            if _writes_for_rank_0(host, rank):
                told.append(f"{host} | {text}")
            elif _shape(text) in self._shapes:
                repeating.append((host, rank))
            else:
                self._shapes.add(_shape(text))
                told.append(f"{host}{'' if rank is None else f' rank {rank}'} | {text}")
        if repeating:
            told.append(
                f"({len(repeating)} lines like these from {len(set(repeating))} other ranks or hosts)"
            )
        return told


def _shape(text: str) -> str:
    return _NUMBER.sub("#", text)


def _writes_for_rank_0(host: str, rank: int | None) -> bool:
    return rank == 0 or (rank is None and host == FIRST_HOST)


def rank_and_text(line: str) -> tuple[int | None, str]:
    """Return the rank that wrote a line (None where the launcher does not say) and the untagged line."""
    match = _RANK.match(line)
    return (int(match["rank"]), line[match.end() :]) if match else (None, line)


def first_error(lines: Sequence[LogLine], before: int = 2, after: int = 12) -> list[LogLine]:
    """Return the first error of these lines with its traceback, [] where there is none.

    Args:
        lines: of all hosts, oldest first.
        before: lines of the same rank to give with it.
        after: as many at least; a longer traceback is given whole.
    """
    for number, line in enumerate(lines):
        rank, text = rank_and_text(line.text)
        if _ERROR.search(text) and not _LAUNCHER.search(text):
            own = [other for other in lines[number:] if _same_writer(line.host, rank, other)]
            texts = [rank_and_text(other.text)[1] for other in own]
            whole = next((index for index in range(1, len(own)) if texts[index][:1].strip()), 0) + 1
            lead = [other for other in lines[:number] if _same_writer(line.host, rank, other)][-before:]
            found = [*lead, *own[: max(after, whole)]]
            return [replace(other, text=rank_and_text(other.text)[1]) for other in found]
    return []


def _same_writer(host: str, rank: int | None, line: LogLine) -> bool:
    # a launcher tags what it can: untagged lines of the host may belong to the rank
    other = rank_and_text(line.text)[0]
    return line.host == host and (rank is None or other is None or other == rank)


def raised(lines: list[str]) -> list[str]:
    """Return the exception that the first traceback of Airflow's log ends with, [] where there is none.

    The first paragraph of its message, without the frames, its causes and the module of its class.
    """
    if _TRACEBACK not in lines:
        return []
    block = lines[lines.index(_TRACEBACK) :]
    block = block[: next((index for index, line in enumerate(block) if _LOG_LINE.match(line)), None)]
    last = len(block) - block[::-1].index(_TRACEBACK)
    head = next(
        (index for index in range(last, len(block)) if not block[index].startswith((" ", "\t"))), last
    )
    exception = "\n".join(block[head:]).strip().partition("\n\n")[0]
    return re.sub(r"^(?:\w+\.)+(?=\w+(?::|$))", "", exception).splitlines()
