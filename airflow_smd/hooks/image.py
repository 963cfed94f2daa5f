"""A connection's image repositories, build contexts and builds; and the context on this disk."""

from __future__ import annotations

import os
from pathlib import Path

from airflow_smd.aws.image import BuildContexts, ImageBuilds, ImageRepository
from airflow_smd.domain.dockerfile import ignore_patterns, ignored
from airflow_smd.domain.image import ContextFile
from airflow_smd.domain.units import MIB, format_bytes
from airflow_smd.errors import Problem, refuse
from airflow_smd.hooks.connection import AwsConnection

LARGEST_CONTEXT_BYTES = 256 * MIB
"""Code, not data: the context is held in memory, hashed and zipped on the worker."""
ALWAYS_IGNORED = ("**/__pycache__", "**/.git", "**/.venv", "**/.DS_Store", "**/*.pyc")


class ImageHook:
    """What an image build needs of AWS.

    Args:
        connection: where the calls go.
    """

    def __init__(self, connection: AwsConnection) -> None:
        self._connection = connection

    def repository(self, name: str) -> ImageRepository:
        """Return one ECR repository."""
        return ImageRepository(self._connection.client("ecr"), name)

    def contexts(self, work_uri: str) -> BuildContexts:
        """Return the store of build contexts under `work_uri`."""
        return BuildContexts(self._connection.client("s3"), work_uri)

    def builds(self, project: str) -> ImageBuilds:
        """Return the builds of one CodeBuild project."""
        return ImageBuilds(self._connection.client("codebuild"), self._connection.client("logs"), project)


def read_context(directory: Path, largest_bytes: int = LARGEST_CONTEXT_BYTES) -> tuple[ContextFile, ...]:
    """Return the files under `directory` that `.dockerignore` does not leave out, sorted by path.

    Raises:
        InvalidInput: no such directory, a link that leads out of it, or more than `largest_bytes`.
    """
    root = directory.resolve()
    if not root.is_dir():
        refuse([_problem("no-context", str(directory), "There is no such directory.", "Correct the path.")])
    rules = root / ".dockerignore"
    patterns = (*ALWAYS_IGNORED, *(ignore_patterns(rules.read_text()) if rules.is_file() else ()))
    names = {path.relative_to(root).as_posix(): path for path in _files(root)}
    chosen = {name: path for name, path in sorted(names.items()) if not ignored(name, patterns)}
    problems = [
        _problem(
            "link-out-of-context",
            name,
            f"The link leads to {path.resolve()}, out of the context or to nothing.",
            "Copy the file into the context.",
        )
        for name, path in chosen.items()
        if path.is_symlink() and not (path.resolve().is_relative_to(root) and path.exists())
    ]
    refuse(problems)
    total = sum(path.stat().st_size for path in chosen.values())
    if total > largest_bytes:
        allowed = format_bytes(largest_bytes)
        message = f"The context has {format_bytes(total)}, more than {allowed}."
        remedy = "Leave data in S3, and name what the image does not need in .dockerignore."
        refuse([_problem("context-size", str(directory), message, remedy)])
    return tuple(
        ContextFile(path=name, content=path.read_bytes(), executable=os.access(path, os.X_OK))
        for name, path in chosen.items()
    )


def _files(root: Path) -> list[Path]:
    """Return files and links; a link to a directory is one of its own, so that no loop is walked."""
    return [path for path in root.rglob("*") if path.is_symlink() or path.is_file()]


def _problem(rule: str, value: str, message: str, remedy: str) -> Problem:
    return Problem(rule=rule, field="source_dir", value=value, message=message, remedy=remedy)
