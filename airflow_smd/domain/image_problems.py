"""What is wrong with a recipe, its context and its Dockerfile, all of it at once."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from airflow_smd.domain.dockerfile import DockerfileError, Instruction, expand, parse_dockerfile, stages
from airflow_smd.errors import Problem, Severity

if TYPE_CHECKING:
    from airflow_smd.domain.image import BuildSettings, ContextFile, ImageRecipe

_HOST = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::\d+)?/)?"
_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+|/)[a-z0-9]+)*"
_REFERENCE = re.compile(rf"{_HOST}{_PATH}(:\w[\w.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?")
_APT = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?")
_SECRET = re.compile(r"(?i)(^|_)(password|passwd|secret|token|api_?key|access_?key|credentials?)(_|$)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REPOSITORY = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
"""botocore: ecr RepositoryName."""
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-_]{1,149}")
"""botocore: codebuild ProjectName."""
_S3_URI = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
_MINUTES = {"timeout_minutes": range(5, 2161), "queued_timeout_minutes": range(5, 481)}


def _problem(rule: str, name: str, value: Any, message: str, remedy: str, **more: Any) -> Problem:
    return Problem(rule=rule, field=name, value=value, message=message, remedy=remedy, **more)


def known_fields(name: str, raw: Any, allowed: Sequence[str]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the arguments that exist, and a problem with the nearest name for each that does not."""
    if not isinstance(raw, Mapping):
        message, remedy = f"A mapping with {', '.join(allowed)} is needed.", "Write it as a dict."
        return {}, [_problem("not-a-mapping", name, raw, message, remedy)]
    problems = []
    for key in raw:
        if key not in allowed:
            near = get_close_matches(key, allowed, 1)
            remedy = f"Did you mean {near[0]}?" if near else "Remove it."
            message = f"There is no such field; allowed are {', '.join(allowed)}."
            problems.append(_problem("unknown-field", f"{name}.{key}", raw[key], message, remedy))
    return {key: value for key, value in raw.items() if key in allowed}, problems


def recipe_problems(recipe: ImageRecipe) -> list[Problem]:
    """Return what is wrong with the recipe alone."""
    found: list[Problem] = []
    if recipe.dockerfile:
        extras = [name for name in ("base_image", "apt", "pip", "requirements") if getattr(recipe, name)]
        found += [
            _problem(
                "dockerfile-and-additions",
                f"recipe.{name}",
                getattr(recipe, name),
                "A Dockerfile of one's own is used as it is, so this would be ignored.",
                f"Move it into the Dockerfile, or leave `dockerfile` out and keep `{name}`.",
            )
            for name in extras
        ]
    elif not recipe.base_image:
        found.append(
            _problem(
                "no-base-image",
                "recipe.base_image",
                recipe.base_image,
                "An image needs a base or a Dockerfile.",
                "Give the URI of a Deep Learning Container, or `dockerfile`.",
            )
        )
    else:
        found += _reference_problems("recipe.base_image", recipe.base_image)
    found += [
        _problem(
            "apt-package",
            f"recipe.apt[{number}]",
            name,
            "Not the name of a Debian package.",
            "Write `name` or `name=version`, one package an item.",
        )
        for number, name in enumerate(recipe.apt)
        if not _APT.fullmatch(name)
    ]
    found += [problem for number, line in enumerate(recipe.pip) for problem in _pip_problems(number, line)]
    for name in recipe.build_args:
        found += _variable_problems(f"recipe.build_args.{name}", name)
    return found


def _reference_problems(name: str, reference: str) -> list[Problem]:
    match = _REFERENCE.fullmatch(reference)
    if not match:
        message = "Not an image reference: registry/repository:tag or registry/repository@sha256:digest."
        return [_problem("image-reference", name, reference, message, "Correct the URI.")]
    if not match[1] and not match[2]:
        message = "Without a tag this means whatever `latest` is that day."
        return [_problem("unpinned-base", name, reference, message, "Add :tag or @sha256:digest.")]
    if match[1] == ":latest" and not match[2]:
        message = "`latest` moves, so the same recipe builds another image tomorrow."
        remedy = "Name a version or a digest."
        return [_problem("moving-base", name, reference, message, remedy, severity=Severity.WARNING)]
    return []


def _pip_problems(number: int, line: str) -> list[Problem]:
    name = f"recipe.pip[{number}]"
    if not line.strip() or "\n" in line or line.lstrip().startswith("-"):
        message = "A requirement such as `torchmetrics==1.4.0` is needed; options and lists are not."
        remedy = "Put options and many packages in a requirements file and name it in `requirements`."
        return [_problem("pip-requirement", name, line, message, remedy)]
    if "==" not in line and "@" not in line:
        message = "Not pinned: the tag stays the same while the package changes."
        remedy = "Add ==version."
        return [_problem("unpinned-package", name, line, message, remedy, severity=Severity.WARNING)]
    return []


def _variable_problems(field: str, name: str) -> list[Problem]:
    if not _NAME.fullmatch(name):
        return [_problem("variable-name", field, name, "Letters, digits and _ are allowed.", "Rename it.")]
    if _SECRET.search(name):
        message = "Build arguments and environment stay readable in the image's history."
        remedy = "Let the job fetch secrets at run time, from Secrets Manager."
        return [_problem("secret-in-image", field, name, message, remedy)]
    return []


def context_problems(recipe: ImageRecipe, files: Sequence[ContextFile]) -> list[Problem]:
    """Return what the recipe names and the context lacks."""
    paths = {file.path for file in files}
    return [
        _problem(
            "missing-in-context",
            f"recipe.{name}",
            path,
            f"The context has no such file; it has {_some(paths)}.",
            "Write the path relative to the context, with /.",
        )
        for name in ("requirements", "entry_point", "dockerfile")
        if (path := getattr(recipe, name)) and path not in paths
    ]


def _some(paths: Iterable[str]) -> str:
    shown = sorted(paths)
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "") or "no files"


def dockerfile_problems(recipe: ImageRecipe, text: str, files: Sequence[ContextFile]) -> list[Problem]:
    """Return what in a Dockerfile of one's own would break the build or the job, by its line."""
    field = "recipe.dockerfile"
    try:
        instructions = parse_dockerfile(text)
    except DockerfileError as error:
        return [_problem("dockerfile-syntax", field, str(error), "Not a Dockerfile.", "Correct this line.")]
    bases = stages(instructions)
    if not bases:
        return [_problem("dockerfile-no-from", field, "", "There is no FROM.", "Begin with FROM image:tag.")]
    found: list[Problem] = []
    arguments = dict(recipe.build_args)
    for instruction in instructions:
        where = f"{field}:{instruction.first_line}"
        if instruction.keyword == "ARG":
            arguments = instruction.pairs | arguments
        found += _instruction_problems(where, instruction, arguments, bases, files)
    return found


def _instruction_problems(
    where: str,
    instruction: Instruction,
    values: Mapping[str, str],
    known_stages: Container[str],
    files: Sequence[ContextFile],
) -> list[Problem]:
    match instruction.keyword:
        case "ARG" | "ENV":
            return [problem for name in instruction.pairs for problem in _variable_problems(where, name)]
        case "FROM":
            base = expand(instruction.words[0], values)
            return [] if base == "scratch" or base in known_stages else _reference_problems(where, base)
        case "COPY" | "ADD" if "from" not in instruction.flags:
            return _copy_problems(where, instruction, values, files)
        case "ENTRYPOINT":
            message = "SageMaker starts `train` as the argument of this entry point."
            remedy = "Make sure that it runs its arguments, or remove ENTRYPOINT."
            warning = Severity.WARNING
            return [_problem("entrypoint", where, instruction.rest, message, remedy, severity=warning)]
    return []


def _copy_problems(
    where: str, instruction: Instruction, values: Mapping[str, str], files: Sequence[ContextFile]
) -> list[Problem]:
    found = []
    for source in instruction.words[:-1]:
        wanted = posixpath.normpath(expand(source, values)).lstrip("/")
        if "://" in source or wanted == ".":
            continue
        if wanted.startswith(".."):
            message, remedy = "The path leaves the context.", "Copy it into the context."
            found.append(_problem("copy-outside", where, source, message, remedy))
        elif not any(_within(file.path, wanted) for file in files):
            message = f"The context has no such file; it has {_some(file.path for file in files)}."
            found.append(_problem("copy-missing", where, source, message, "Correct the path."))
    return found


def _within(path: str, wanted: str) -> bool:
    parts, depth = path.split("/"), wanted.count("/") + 1
    return fnmatchcase("/".join(parts[:depth]), wanted)


def target_problems(repository: str, work_uri: str, settings: BuildSettings) -> list[Problem]:
    """Return what is wrong with where the image goes and how it is built."""
    found: list[Problem] = []
    if not 2 <= len(repository) <= 256 or not _REPOSITORY.fullmatch(repository):
        message = "2 to 256 lower-case letters, digits, and . _ - / between them are allowed."
        found.append(_problem("repository-name", "repository", repository, message, "Rename it."))
    if not _S3_URI.fullmatch(work_uri):
        message = "Not an S3 URI."
        found.append(_problem("s3-uri", "work_uri", work_uri, message, "Write s3://bucket/prefix."))
    if settings.project:
        if not _PROJECT.fullmatch(settings.project):
            message = "2 to 150 letters, digits, - and _ are allowed."
            found.append(_problem("project-name", "build.project", settings.project, message, "Correct it."))
    elif not _ROLE.fullmatch(settings.role_arn):
        message = "Not the ARN of an IAM role, which CodeBuild needs to pull, push and log."
        remedy = "Give arn:aws:iam::<account>:role/<name>, or a project of your own in `build.project`."
        found.append(_problem("role-arn", "codebuild_role_arn", settings.role_arn, message, remedy))
    for name, allowed in _MINUTES.items():
        if getattr(settings, name) not in allowed:
            message = f"CodeBuild allows {allowed.start} to {allowed.stop - 1} minutes."
            found.append(_problem("minutes", f"build.{name}", getattr(settings, name), message, "Change it."))
    return found
