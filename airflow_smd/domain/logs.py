"""Lines of a job's hosts and of Airflow's tasks: who wrote them, and what went wrong first."""

from __future__ import annotations

import re

_RANK = re.compile(r"^\[\d+,(?:mpirank:)?(?P<rank>\d+)(?:,[^\]]*)?\]<std(?:out|err)>:\s?")
"""What mpirun's --tag-output and the training toolkit put before a line: `[1,mpirank:3,algo-2]<stdout>:`."""
_ERROR = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*:|^Traceback \(most recent call last\)"
)
_LAUNCHER = re.compile(r"MPI_ABORT|mpirun|orted|ExecuteUserScriptError|Command \"|sagemaker-training-toolkit")
"""The launcher's echo of an error that a rank had before."""
_TRACEBACK = "Traceback (most recent call last):"
_LOG_LINE = re.compile(r"^\[?\d{4}-\d\d-\d\dT")


def rank_and_text(line: str) -> tuple[int | None, str]:
    """Return the rank that wrote a line (None where the launcher does not say) and the untagged line."""
    match = _RANK.match(line)
    return (int(match["rank"]), line[match.end() :]) if match else (None, line)


def first_error(lines: list[str], before: int = 2, after: int = 12) -> list[str]:
    """Return the first error of these lines with what stands around it, [] where there is none."""
    texts = [rank_and_text(line)[1] for line in lines]
    for index, text in enumerate(texts):
        if _ERROR.search(text) and not _LAUNCHER.search(text):
            return texts[max(0, index - before) : index + after]
    return []


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
