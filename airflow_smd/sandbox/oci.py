"""An image built from a Dockerfile by Python alone, on this machine's own root where AWS's images stand."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_smd.domain.dockerfile import Instruction, expand, parse_dockerfile
from airflow_smd.sandbox import oci_run
from airflow_smd.sandbox.oci_copy import Context, Tree
from airflow_smd.sandbox.oci_layer import Layer, manifest
from airflow_smd.sandbox.oci_store import Base, BuildError, Built, Store, hashed

HOST_LABEL = "airflow-smd.sandbox.on-host-root"
"""Says of an image that its layers lie over this machine's own root."""
LEFT_OUT_LABEL = "airflow-smd.sandbox.left-out"
"""Says how many RUN steps are missing from an image, since nothing could be run inside it here."""


@dataclass(slots=True, kw_only=True)
class _Stage:
    """A build stage while it is built."""

    base: Base
    layers: list[Layer]
    environment: dict[str, str]
    config: dict[str, Any]
    key: str
    arguments: dict[str, str] = field(default_factory=dict)
    left_out: int = 0
    shell: tuple[str, ...] = ("/bin/sh", "-c")

    @property
    def working_directory(self) -> str:
        directory: str = self.config.get("WorkingDir") or "/"
        return directory


class Builder:
    """Builds one Dockerfile.

    Args:
        store: where layers are kept.
        find_base: image reference -> what FROM stands on; raises BuildError if there is no such image.
        say: writes a line to the build's log.
        may_run: whether RUN can be done here; None finds out.
    """

    def __init__(
        self,
        store: Store,
        find_base: Callable[[str], Base],
        say: Callable[[str], None],
        may_run: bool | None = None,
    ) -> None:
        self._may_run = bool(oci_run.namespaces()) if may_run is None else may_run
        self._store = store
        self._find_base = find_base
        self._say = say
        self._context = Context(Path())

    def build(self, text: str, context: Path, build_args: Mapping[str, str]) -> Built:
        """Build and return the last stage; BuildError names the step that failed."""
        self._context = Context(context)
        instructions = parse_dockerfile(text)
        stages: dict[str, _Stage] = {}
        before_from: dict[str, str] = {}
        stage: _Stage | None = None
        for number, instruction in enumerate(instructions, 1):
            self._say(f"Step {number}/{len(instructions)} : {instruction.keyword} {instruction.rest}")
            if instruction.keyword == "FROM":
                stage = self._from(instruction, stages, before_from)
            elif stage is None:
                before_from |= _arguments(instruction, build_args, {})
            else:
                self._step(stage, instruction, build_args, before_from)
        if stage is None:
            raise BuildError("The Dockerfile has no FROM")
        return self._finish(stage)

    def _from(
        self, instruction: Instruction, stages: dict[str, _Stage], arguments: Mapping[str, str]
    ) -> _Stage:
        words = instruction.words
        name = expand(words[0], arguments)
        if name in stages:
            parent = stages[name]
            stage = replace(
                parent,
                layers=list(parent.layers),
                environment=dict(parent.environment),
                config=dict(parent.config),
                arguments={},
            )
        else:
            base = self._find_base(name)
            stage = _Stage(
                base=base,
                layers=list(base.layers),
                environment=dict(base.environment),
                config=dict(base.config),
                key=hashed(f"{base.on_host} {[layer.diff_id for layer in base.layers]}"),
            )
        stages[words[2] if len(words) == 3 else str(len(stages))] = stage
        return stage

    def _step(
        self,
        stage: _Stage,
        instruction: Instruction,
        build_args: Mapping[str, str],
        before_from: Mapping[str, str],
    ) -> None:
        values = stage.arguments | stage.environment
        match instruction.keyword:
            case "RUN":
                self._run(stage, instruction)
            case "COPY" | "ADD":
                self._copy(stage, instruction, [expand(word, values) for word in instruction.words])
            case "ARG":
                stage.arguments |= _arguments(instruction, build_args, before_from)
            case "ENV":
                stage.environment |= {key: expand(value, values) for key, value in instruction.pairs.items()}
            case "SHELL":
                stage.shell = instruction.words
            case "ENTRYPOINT" | "CMD":
                form = instruction.exec_form or (*stage.shell, instruction.rest)
                stage.config[instruction.keyword.capitalize()] = list(form)
            case "WORKDIR" | "USER" | "LABEL" | "EXPOSE":
                _configure(stage, instruction, values)
            case _:
                self._say(f" ---> left out: {instruction.keyword} means nothing to SageMaker")

    def _run(self, stage: _Stage, instruction: Instruction) -> None:
        command = list(instruction.exec_form or (*stage.shell, instruction.rest))
        environment = stage.arguments | stage.environment
        user = stage.config.get("User", "")
        key = hashed(
            json.dumps([stage.key, command, environment, stage.working_directory, user], sort_keys=True)
        )
        if self._reuse(stage, key):
            return
        if not self._may_run:
            stage.left_out += 1
            stage.key = key
            self._say(
                " ---> LEFT OUT: to run a command inside an image the sandbox has to be root, with mount "
                "namespaces allowed. What this step does is missing from the image."
            )
            return
        with tempfile.TemporaryDirectory(dir=_made(self._store.scratch)) as scratch:
            upper = _made(Path(scratch) / "upper")
            code = oci_run.run(
                command,
                scratch=Path(scratch),
                lower=[self._store.directory(layer) for layer in reversed(stage.layers)],
                upper=upper,
                on_host=stage.base.on_host,
                environment=environment,
                working_directory=stage.working_directory,
                user=user,
            )
            if code:
                raise BuildError(f"The command '{instruction.rest}' returned a non-zero code: {code}")
            _drop_mount_points(upper)
            self._keep(stage, key, upper)

    def _copy(self, stage: _Stage, instruction: Instruction, words: Sequence[str]) -> None:
        if "from" in instruction.flags:
            raise BuildError(
                "COPY --from needs buildah: install it, and start the sandbox with --images buildah"
            )
        *sources, target = words
        flags = instruction.flags
        files = self._context.copied(sources, target, stage.working_directory, flags.get("chmod", ""))
        key = hashed(json.dumps([stage.key, [file.fingerprint() for file in files]]))
        if self._reuse(stage, key):
            return
        with tempfile.TemporaryDirectory(dir=_made(self._store.scratch)) as scratch:
            root = _made(Path(scratch) / "files")
            Tree(self._store, stage.layers, stage.base.on_host).add(root, files)
            self._keep(stage, key, root)

    def _reuse(self, stage: _Stage, key: str) -> bool:
        layer = self._store.cached(key)
        if layer is None:
            return False
        self._say(" ---> Using cache")
        stage.layers.append(layer)
        stage.key = key
        return True

    def _keep(self, stage: _Stage, key: str, files: Path) -> None:
        layer = self._store.keep(key, files)
        stage.layers.append(layer)
        stage.key = key
        self._say(f" ---> {layer.digest[7:19]} ({layer.size_bytes} bytes)")

    def _finish(self, stage: _Stage) -> Built:
        labels = dict(stage.config.get("Labels", {}))
        if stage.base.on_host:
            labels[HOST_LABEL] = "true"
        if stage.left_out:
            labels[LEFT_OUT_LABEL] = str(stage.left_out)
        environment = [f"{key}={value}" for key, value in stage.environment.items()]
        config = json.dumps(
            {
                "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "amd64"),
                "os": "linux",
                "created": "1980-01-01T00:00:00Z",
                "config": {**stage.config, "Env": environment, "Labels": labels},
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in stage.layers]},
            },
            sort_keys=True,
        )
        body = json.dumps(manifest(config.encode(), stage.layers))
        digest = f"sha256:{hashlib.sha256(body.encode()).hexdigest()}"
        return Built(digest=digest, config=config, layers=tuple(stage.layers))


def _configure(stage: _Stage, instruction: Instruction, values: Mapping[str, str]) -> None:
    config = stage.config
    words = [expand(word, values) for word in instruction.words]
    match instruction.keyword:
        case "WORKDIR":
            config["WorkingDir"] = os.path.normpath(Path(stage.working_directory) / words[0])
        case "USER":
            config["User"] = words[0]
        case "LABEL":
            pairs = {key: expand(value, values) for key, value in instruction.pairs.items()}
            config["Labels"] = {**config.get("Labels", {}), **pairs}
        case "EXPOSE":
            ports: dict[str, Any] = {word if "/" in word else f"{word}/tcp": {} for word in words}
            config["ExposedPorts"] = {**config.get("ExposedPorts", {}), **ports}


def _arguments(
    instruction: Instruction, build_args: Mapping[str, str], before_from: Mapping[str, str]
) -> dict[str, str]:
    return {
        name: build_args.get(name, before_from.get(name, "") if "=" not in instruction.rest else default)
        for name, default in instruction.pairs.items()
    }


def _drop_mount_points(upper: Path) -> None:
    for name in ("proc", "sys", "dev"):
        if (upper / name).is_dir() and not any((upper / name).iterdir()):
            (upper / name).rmdir()


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
