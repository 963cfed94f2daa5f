"""A Dockerfile as a sequence of instructions, and what `.dockerignore` leaves out of its context."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

INSTRUCTIONS = frozenset(
    {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"}
    | {"ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)
"""Dockerfile reference, docs.docker.com, 2026."""
_HEREDOC = re.compile(r"<<-?([\"']?)(\w+)\1")


class DockerfileError(ValueError):
    """A line that is no Dockerfile; `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(f"line {line}: {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction as it is written, with its continuation lines joined."""

    keyword: str
    """In capitals: `RUN`."""
    rest: str
    """What follows the keyword and its flags, unexpanded."""
    flags: Mapping[str, str]
    """`--from=build` as `{"from": "build"}`."""
    first_line: int
    last_line: int

    @property
    def words(self) -> tuple[str, ...]:
        """Return the arguments: of the JSON form its items, else the words as a shell would split them."""
        return self.exec_form or tuple(shlex.split(self.rest))

    @property
    def exec_form(self) -> tuple[str, ...] | None:
        """Return the items of `["a", "b"]`, None in shell form."""
        if not self.rest.startswith("["):
            return None
        try:
            items = json.loads(self.rest)
        except ValueError:
            return None
        return tuple(items) if isinstance(items, list) and all(isinstance(i, str) for i in items) else None

    @property
    def pairs(self) -> dict[str, str]:
        """Return what ENV, LABEL or ARG set; of `ENV KEY some words` the old form is understood too."""
        words = self.words
        if self.keyword == "ENV" and words and "=" not in words[0]:
            key, _, value = self.rest.partition(" ")
            return {key: value.strip()}
        return {key: value for key, _, value in (word.partition("=") for word in words)}


def parse_dockerfile(text: str) -> tuple[Instruction, ...]:
    """Return the instructions of a Dockerfile.

    Raises:
        DockerfileError: an unknown instruction, one without arguments, an unclosed quote, or a heredoc
            (which only BuildKit knows).
    """
    escape, found, lines = "\\", [], text.splitlines()
    if lines and (directive := re.fullmatch(r"#\s*escape\s*=\s*([\\`])\s*", lines[0])):
        escape = directive[1]
    number = 0
    while number < len(lines):
        number += 1
        line = lines[number - 1].strip()
        if not line or line.startswith("#"):
            continue
        first = number
        while line.endswith(escape) and number < len(lines):
            number += 1
            following = lines[number - 1].strip()
            if following.startswith("#") or (not following and number < len(lines)):
                continue  # a comment or an empty line inside an instruction is skipped, as Docker does
            line = line[: -len(escape)].rstrip() + " " + following
        found.append(_instruction(line.removesuffix(escape).strip(), first, number))
    return tuple(found)


def _instruction(line: str, first: int, last: int) -> Instruction:
    keyword, rest, flags = [*line.split(None, 1), ""][0].upper(), "".join(line.split(None, 1)[1:]), {}
    if keyword not in INSTRUCTIONS:
        raise DockerfileError(first, f"unknown instruction {keyword}")
    while rest.startswith("--"):
        flag, _, rest = rest.partition(" ")
        name, _, value = flag[2:].partition("=")
        flags[name], rest = value, rest.strip()
    if not rest:
        raise DockerfileError(first, f"{keyword} needs an argument")
    if keyword in ("RUN", "COPY", "ADD") and _HEREDOC.search(rest):
        raise DockerfileError(first, f"a heredoc in {keyword} needs BuildKit: join the lines with && instead")
    instruction = Instruction(keyword=keyword, rest=rest, flags=flags, first_line=first, last_line=last)
    if keyword != "RUN":
        try:
            _ = instruction.words
        except ValueError as error:
            raise DockerfileError(first, f"{keyword}: {error}".lower()) from None
    return instruction


def expand(text: str, values: Mapping[str, str]) -> str:
    r"""Return `text` with `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}` replaced.

    A name without a value becomes empty, and `\$` stays a dollar, as in Docker.
    """

    def value(match: re.Match[str]) -> str:
        if match[0] == "\\$":
            return "$"
        name, rule, word = match[1] or match[2], match[3], match[4] or ""
        known = values.get(name, "")
        if rule == ":-":
            return known or expand(word, values)
        if rule == ":+":
            return expand(word, values) if known else ""
        return known

    return re.sub(r"\\\$|\$(?:(\w+)|\{(\w+)(?:(:[-+])([^}]*))?\})", value, text)


def ignored(path: str, patterns: Sequence[str]) -> bool:
    """Tell whether `.dockerignore` patterns leave a path out; the last pattern that matches decides."""
    left_out = False
    for pattern in patterns:
        negated = pattern.startswith("!")
        glob = pattern[negated:].strip().strip("/")
        if glob and _glob(glob).match(path):
            left_out = not negated
    return left_out


def ignore_patterns(text: str) -> tuple[str, ...]:
    """Return the patterns of a `.dockerignore` file."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def _glob(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of Go's filepath.Match with `**`; it matches a folder together with what is in it."""
    parts = re.split(r"(\*\*/?|\*|\?|\[[^\]]*\])", pattern)
    table = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    translated = (table.get(part, part if part.startswith("[") else re.escape(part)) for part in parts)
    return re.compile("".join(translated) + r"(?:/.*)?\Z")


def stages(instructions: Iterable[Instruction]) -> dict[str, str]:
    """Return the name of each build stage (`AS name`, else its number) and the base it is built from."""
    named: dict[str, str] = {}
    for instruction in instructions:
        if instruction.keyword == "FROM":
            words = instruction.words
            named[words[2] if len(words) == 3 and words[1].upper() == "AS" else str(len(named))] = words[0]
    return named
