"""Lines of a job's hosts, sorted by who wrote them."""

from __future__ import annotations

import re

_RANK = re.compile(r"^\[\d+,(?:mpirank:)?(?P<rank>\d+)(?:,[^\]]*)?\]<std(?:out|err)>:\s?")
"""What mpirun's --tag-output and the training toolkit put before a line: `[1,mpirank:3,algo-2]<stdout>:`."""
_ERROR = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*:|^Traceback \(most recent call last\)"
)
_LAUNCHER = re.compile(r"MPI_ABORT|mpirun|orted|ExecuteUserScriptError|Command \"|sagemaker-training-toolkit")
"""The launcher's echo of an error that a rank had before."""


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
