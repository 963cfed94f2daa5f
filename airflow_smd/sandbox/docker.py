"""What `docker` and `aws ecr get-login-password` mean inside the sandbox's CodeBuild."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from airflow_smd.domain.dockerfile import DockerfileError, expand, parse_dockerfile, stages
from airflow_smd.sandbox import buildah
from airflow_smd.sandbox.host_base import host_base
from airflow_smd.sandbox.oci import HOST_LABEL, Builder
from airflow_smd.sandbox.oci_store import Base, BuildError, Built, Store
from airflow_smd.sandbox.registry_client import RegistryClient, RegistryRefused, base_of

HOST = "sandbox/host"
"""The name of this machine's own root as a base image."""
OWN, AWS = "own", "aws"
_ECR = re.compile(r"(\d{12})\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?/([^:@]+)[:@]?(.*)")
_PUBLIC = re.compile(r"public\.ecr\.aws/(?:deep-learning-containers|sagemaker)/([^:@]+)[:@]?(.*)")
_AWS_REPOSITORIES = re.compile(
    r"(huggingface-)?(pytorch|tensorflow|mxnet)(-training|-inference)?(-neuronx?)?|smdistributed-modelparallel"
    r"|autogluon-(training|inference)|sagemaker-[a-z-]+"
)
"""Deep Learning Containers and SageMaker's own (github.com/aws/deep-learning-containers, 2026)."""


class Docker:
    """The commands, for one sandbox.

    Args:
        images: directory of the sandbox's images.
        endpoint_url: where the registry answers.
        account: the sandbox's account, whose ECR host names mean the registry.
        python: the Python that stands for the one in every image.
        mode: `auto`, `buildah` or `python`.
    """

    def __init__(self, *, images: Path, endpoint_url: str, account: str, python: Path, mode: str) -> None:
        self._store = Store(images / "python")
        self._buildah = buildah.Buildah(images / "buildah", endpoint_url)
        self._registry = RegistryClient(endpoint_url)
        self._account = account
        self._python = python
        self._bin = images / "bin"
        self._mode = mode

    def login(self, arguments: argparse.Namespace) -> None:
        """Take any password that is not empty, as the registry asks for none."""
        if not (sys.stdin.read().strip() if arguments.password_stdin else arguments.password):
            raise BuildError("Error: Password Required")
        _say("Login Succeeded")

    def build(self, arguments: argparse.Namespace) -> None:
        """Build with buildah or with Python, whichever can do it."""
        context = Path(arguments.context)
        file = Path(arguments.file) if arguments.file else context / "Dockerfile"
        if not file.is_file():
            raise BuildError(f"unable to prepare context: no such Dockerfile: {file}")
        text = file.read_text()
        build_args = dict(_pair(item) for item in arguments.build_arg)
        known = stages(parse_dockerfile(text))
        bases = {expand(base, build_args): self._kind(expand(base, build_args)) for base in known.values()}
        on_host = any(kind in (AWS, HOST) or self._on_host(base) for base, kind in bases.items())
        with_buildah = self._mode == "buildah" or (self._mode == "auto" and not on_host and buildah.works())
        _say(f"Building with {'buildah' if with_buildah else 'the plain-Python builder'}")
        if with_buildah:
            replaced = {base: self._for_buildah(base) for base in bases if base not in known}
            with tempfile.TemporaryDirectory() as scratch:
                rewritten = Path(scratch) / "Dockerfile"
                rewritten.write_text(_with_bases(text, build_args, replaced))
                self._buildah.build(rewritten, context, arguments.tag, build_args)
            return
        built = Builder(self._store, self._base, _say).build(text, context, build_args)
        for tag in arguments.tag:
            self._store.name(tag, built)
        _say(f"Successfully built {built.digest[7:19]}")

    def tag(self, arguments: argparse.Namespace) -> None:
        """Give an image one more name."""
        built = self._store.find(arguments.source)
        if built:
            self._store.name(arguments.target, built)
        else:
            self._buildah.tag(arguments.source, arguments.target)

    def push(self, arguments: argparse.Namespace) -> None:
        """Push an image to the sandbox's registry."""
        ecr = _ECR.fullmatch(arguments.image)
        if not ecr or ecr[1] != self._account:
            raise BuildError(f"denied: only the registry of account {self._account} can be pushed to")
        name, tag = ecr[2], ecr[3] or "latest"
        built = self._store.find(arguments.image)
        _say(f"The push refers to repository [{arguments.image.partition(':')[0]}]")
        if built:
            digest = self._registry.push(name, tag, built, self._store)
        else:
            digest = self._buildah.push(arguments.image, name, tag)
        _say(f"{tag}: digest: {digest}")

    def _kind(self, reference: str) -> str:
        if ecr := _ECR.fullmatch(reference):
            if ecr[1] == self._account:
                return OWN
            return AWS if _AWS_REPOSITORIES.fullmatch(ecr[2]) else ""
        if reference.partition(":")[0] == HOST:
            return HOST
        public = _PUBLIC.fullmatch(reference)
        return AWS if public and _AWS_REPOSITORIES.fullmatch(public[1]) else ""

    def _on_host(self, reference: str) -> bool:
        """Tell whether an image of the sandbox lies over this machine's own root."""
        if built := self._store.find(reference):
            return _base_of_built(built).on_host
        ecr = _ECR.fullmatch(reference)
        if not ecr or self._kind(reference) != OWN:
            return False
        described = self._registry.describe(ecr[2], ecr[3] or "latest")
        return described is not None and base_of(described[1], (), HOST_LABEL).on_host

    def _base(self, reference: str) -> Base:
        """Return what the plain-Python builder lays an image on."""
        if reference == "scratch":
            return Base()
        if built := self._store.find(reference):
            return _base_of_built(built)
        kind = self._kind(reference)
        if kind in (AWS, HOST):
            _say(f" ---> {reference} cannot be pulled here: this machine's own root stands for it")
            return host_base(reference, self._store, self._bin, self._python)
        if kind == OWN:
            ecr = _ECR.fullmatch(reference)
            pulled = ecr and self._registry.pull(ecr[2], ecr[3] or "latest", self._store, HOST_LABEL)
            if pulled:
                return pulled
        raise BuildError(_unknown(reference))

    def _for_buildah(self, reference: str) -> str:
        kind = self._kind(reference)
        if self._on_host(reference):
            raise BuildError(f"{reference} lies over this machine's own root: build it with buildah too")
        if kind == OWN:
            return self._buildah.address + "/" + reference.partition("/")[2]
        if kind in (AWS, HOST):
            _say(f" ---> {reference} cannot be pulled here: Debian packages of this machine stand for it")
            return self._buildah.host_base()
        if _ECR.fullmatch(reference):
            raise BuildError(_unknown(reference))
        return reference


def _unknown(reference: str) -> str:
    return (
        f"manifest for {reference} not found: manifest unknown: Requested image not found. The sandbox has "
        f"AWS's Deep Learning Containers (as {HOST}), {HOST}, scratch, and what was pushed to it; with "
        "--images buildah also what buildah can pull."
    )


def _base_of_built(built: Built) -> Base:
    return base_of(json.loads(built.config), built.layers, HOST_LABEL)


def _with_bases(text: str, build_args: dict[str, str], replaced: dict[str, str]) -> str:
    lines = text.splitlines()
    for instruction in parse_dockerfile(text):
        if instruction.keyword == "FROM":
            base = expand(instruction.words[0], build_args)
            words = [replaced.get(base, base), *instruction.words[1:]]
            lines[instruction.first_line - 1] = f"FROM {' '.join(words)}"
            for number in range(instruction.first_line, instruction.last_line):
                lines[number] = ""
    return "\n".join(lines) + "\n"


def _pair(item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    return name, value if equals else os.environ.get(name, "")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _docker_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="docker")
    commands = parser.add_subparsers(dest="command", required=True)
    login = commands.add_parser("login")
    login.add_argument("-u", "--username")
    login.add_argument("-p", "--password", default="")
    login.add_argument("--password-stdin", action="store_true")
    login.add_argument("host", nargs="?")
    build = commands.add_parser("build")
    build.add_argument("-t", "--tag", action="append", default=[])
    build.add_argument("-f", "--file")
    build.add_argument("--build-arg", action="append", default=[])
    for ignored in ("--platform", "--progress", "--cache-from", "--network"):
        build.add_argument(ignored)
    build.add_argument("--pull", action="store_true")
    build.add_argument("context")
    tag = commands.add_parser("tag")
    tag.add_argument("source")
    tag.add_argument("target")
    commands.add_parser("push").add_argument("image")
    commands.add_parser("version")
    return parser


def docker(argv: Sequence[str]) -> int:
    """Run one docker command; return its exit code."""
    arguments = _docker_parser().parse_args(argv)
    place = os.environ
    commands = Docker(
        images=Path(place["SMD_SANDBOX_IMAGES"]),
        endpoint_url=place["AWS_ENDPOINT_URL"],
        account=place["SMD_SANDBOX_ACCOUNT"],
        python=Path(place["SMD_SANDBOX_PYTHON"]),
        mode=place["SMD_SANDBOX_BUILDER"],
    )
    chosen: dict[str, Callable[[argparse.Namespace], None]] = {
        "login": commands.login,
        "build": commands.build,
        "tag": commands.tag,
        "push": commands.push,
        "version": lambda _: _say("airflow-smd sandbox, standing for docker"),
    }
    try:
        chosen[arguments.command](arguments)
    except (BuildError, DockerfileError, RegistryRefused) as error:
        _say(str(error))
        return 1
    return 0


def aws(argv: Sequence[str]) -> int:
    """Answer `aws ecr get-login-password`; hand anything else to a real AWS CLI if there is one."""
    if list(argv[:2]) == ["ecr", "get-login-password"]:
        _say("sandbox")
        return 0
    own = Path(os.environ["SMD_SANDBOX_SHIMS"])
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if Path(p) != own)
    real = shutil.which("aws", path=path)
    if not real:
        sys.stderr.write(f"aws: the sandbox has only `aws ecr get-login-password`, not {' '.join(argv)}\n")
        return 127
    return subprocess.run([real, *argv], check=False).returncode


if __name__ == "__main__":
    sys.exit({"docker": docker, "aws": aws}[sys.argv[1]](sys.argv[2:]))
