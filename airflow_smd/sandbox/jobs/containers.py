"""The containers of a job: what they see, how they start, how their end is told."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_smd.sandbox.jobs import launch
from airflow_smd.sandbox.jobs.cloud import Cloud
from airflow_smd.sandbox.jobs.hosts import Bind, HostPlan, Isolation
from airflow_smd.sandbox.jobs.layout import Layout
from airflow_smd.sandbox.jobs.machines import Machine
from airflow_smd.sandbox.runtime import Image, Runtime


class JobFailed(Exception):
    """The job ends as Failed; the text is its FailureReason."""


@dataclass(frozen=True, slots=True)
class Containers:
    """The containers of one job, one on each of its hosts."""

    runtime: Runtime
    isolation: Isolation
    directory: Path

    def layout(self, host: str) -> Layout:
        """Return where a host's directories lie."""
        return Layout(self.directory / host)

    def plan(
        self,
        machine: Machine,
        start: launch.Launch,
        image: Image | None,
        own: Mapping[str, str],
        binds: Sequence[Bind],
    ) -> HostPlan:
        """Return how one host starts; `own` are the variables of the job, the request's Environment last."""
        layout = self.layout(machine.name)
        environment = launch.base_environment(self.runtime, image, self.isolation, layout.ml, machine.gpus)
        own_pythonpath = own.get("PYTHONPATH") or (image.environment.get("PYTHONPATH") if image else None)
        environment |= {**start.environment, **own}
        if own_pythonpath:
            stand_ins = launch.INSIDE / "stand_ins" if self.isolation.namespaces else launch.STAND_INS
            environment["PYTHONPATH"] = f"{stand_ins}:{own_pythonpath}"
        if not self.isolation.namespaces:
            rewritten = {key: layout.rewritten(value) for key, value in environment.items()}
            return HostPlan(
                machine=machine,
                directory=layout.directory,
                argv=[layout.rewritten(word) for word in start.argv],
                environment=rewritten,
                working_directory=str(layout.ml / "code" if (layout.ml / "code").is_dir() else layout.ml),
            )
        return HostPlan(
            machine=machine,
            directory=layout.directory,
            argv=start.argv,
            environment=environment,
            working_directory=image.working_directory if image else "/",
            binds=[Bind(source=layout.ml, target="/opt/ml"), *self._sandbox_binds(), *binds],
            layers=image.layers if image else (),
            on_host_root=image.on_host_root if image else True,
            visible=launch.inspect(self.runtime.settings.container_python).prefixes
            if image is None or image.on_host_root
            else (),
        )

    def _sandbox_binds(self) -> list[Bind]:
        keys = self.directory / "ssh"
        return [
            Bind(source=launch.STAND_INS, target=str(launch.INSIDE / "stand_ins"), read_only=True),
            Bind(source=launch.LAUNCHER, target=str(launch.INSIDE / "launcher.py"), read_only=True),
            Bind(source=keys if keys.is_dir() else self._empty(), target="/root/.ssh"),
        ]

    def _empty(self) -> Path:
        empty = self.directory / "empty"
        empty.mkdir(mode=0o700, exist_ok=True)
        return empty


def find_image(runtime: Runtime, cloud: Cloud, uri: str, role: str) -> Image | None:
    """Return an image of this account's ECR, None for anybody else's; a missing one fails the job."""
    image = runtime.image(uri)
    repository = cloud.own_repository(uri)
    if image is not None or repository is None:
        return image
    registry = uri.partition(".")[0]
    if not cloud.repository_exists(repository):
        raise JobFailed(
            f"ClientError: Cannot find repository: {repository} in registry ID: {registry} Please check if"
            f" your ECR repository exists and role {role} has proper pull permissions for SageMaker:"
            " ecr:BatchCheckLayerAvailability, ecr:BatchGetImage, ecr:GetDownloadUrlForLayer"
        )
    raise JobFailed(f"ClientError: Cannot find image: {uri} in repository: {repository}")


def failure_reason(directory: Path, code: int, *, training: bool) -> str:
    """Return AWS's FailureReason for a container that ended with `code`."""
    failure = directory / "output" / "failure"
    text = failure.read_text(errors="replace").strip() if failure.is_file() else ""
    if training:
        # AWS cuts the reason at 1,024 characters; the exit code after the text must survive that.
        return f"AlgorithmError: {text[:980]}, exit code: {code}"
    return f"AlgorithmError: {text or 'See job logs for more information'}"


def make_ssh_keys(directory: Path) -> None:
    """Create what lets the hosts of a job log in to each other without a question."""
    if not shutil.which("ssh-keygen"):
        return
    keys = directory / "ssh"
    keys.mkdir(mode=0o700)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "id_ed25519"],
        check=True,
        capture_output=True,
    )
    shutil.copy(keys / "id_ed25519.pub", keys / "authorized_keys")
    (keys / "config").write_text(
        "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    )
    (keys / "config").chmod(0o600)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
