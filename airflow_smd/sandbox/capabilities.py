"""What this machine lets the sandbox do, and what would let it do more."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

from airflow_smd.errors import Problem, refuse
from airflow_smd.sandbox.runtime import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One thing that the sandbox can use, or how it does without."""

    name: str
    used: bool
    detail: str
    """What is used, or what takes its place."""
    left_out: str = ""
    """What cannot be rehearsed without it."""
    install: str = ""
    """The command, or the condition, that brings it."""

    def __str__(self) -> str:
        if self.used:
            return f"{self.name}: {self.detail}"
        return f"{self.name}: {self.detail}; left out: {self.left_out}; to get it: {self.install}"

    def as_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def capabilities(settings: Settings) -> list[Capability]:
    """Look for everything optional, in the order in which a person cares."""
    return [
        _hosts(settings),
        _program(
            "Open MPI", "mpirun", "MPI and SMDDP jobs over several processes", "apt install openmpi-bin"
        ),
        _program("OpenSSH server", "sshd", "MPI jobs over several hosts", "apt install openssh-server"),
        _toolkit(settings),
        _images(settings),
    ]


def namespaces(settings: Settings) -> str:
    """Tell how a host can be a namespace of its own: `root`, `user`, or empty if it cannot.

    `user` means that the sandbox itself must run in a user namespace (NAMESPACE_PREFIX).
    """
    if settings.hosts == "process" or sys.platform != "linux":
        return ""
    if _works(("unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "true")):
        return "root"
    return "user" if _works((*NAMESPACE_PREFIX, "unshare", "--net", "--pid", "--fork", "true")) else ""


NAMESPACE_PREFIX = ("unshare", "--user", "--map-root-user", "--mount", "--")


def _hosts(settings: Settings) -> Capability:
    found = namespaces(settings)
    if found:
        how = "with root" if found == "root" else "in a user namespace"
        detail = f"a namespace for each host, {how}: own name, network and /opt/ml"
        return Capability(name="Hosts", used=True, detail=detail)
    install = "leave out --hosts process" if settings.hosts == "process" else _namespace_remedy()
    return Capability(
        name="Hosts",
        used=False,
        detail="plain processes",
        left_out="separate host names, networks and /opt/ml; MPI over several hosts",
        install=install,
    )


def _namespace_remedy() -> str:
    if sys.platform != "linux":
        return "run the sandbox on Linux"
    if Path("/.dockerenv").exists():
        return "start the container with --privileged"
    return "run as root, or allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1)"


def _program(name: str, program: str, left_out: str, install: str) -> Capability:
    path = find_program(program)
    return Capability(
        name=name, used=bool(path), detail=path or "not installed", left_out=left_out, install=install
    )


def find_program(name: str) -> str:
    """Return the path of a program, also of those for administrators only; empty if there is none."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
    return shutil.which(name, path=path) or ""


def _toolkit(settings: Settings) -> Capability:
    version = toolkit_version(settings.container_python)
    return Capability(
        name="sagemaker-training toolkit",
        used=bool(version),
        detail=f"{version} of {settings.container_python}" if version else "the sandbox's own launcher",
        left_out="AWS's own launcher inside the containers",
        install=f"{settings.container_python} -m pip install sagemaker-training (needs a C compiler)",
    )


@cache
def toolkit_version(python: Path) -> str:
    """Return the version of the sagemaker-training toolkit of a Python; empty if it has none."""
    if python == Path(sys.executable) and util.find_spec("sagemaker_training") is None:
        return ""
    ask = "import importlib.metadata as m; print(m.version('sagemaker-training'))"
    try:
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _images(settings: Settings) -> Capability:
    buildah = find_program("buildah")
    if settings.images != "python" and buildah:
        return Capability(name="Images", used=True, detail=f"built by {buildah}")
    return Capability(
        name="Images",
        used=False,
        detail="OCI images written by Python alone",
        left_out="builds by buildah",
        install="leave out --images python" if buildah else "apt install buildah",
    )


def check_settings(settings: Settings) -> None:
    """Refuse what the settings ask for and the machine cannot give; all problems at once."""
    missing = [name for name in ("moto", "flask", "flask_cors") if util.find_spec(name) is None]
    asked: list[tuple[bool, str, Any, str, str]] = [
        (
            bool(missing),
            "sandbox",
            ", ".join(missing),
            "The sandbox's own packages are not installed.",
            "pip install 'airflow-smd[sandbox]'",
        ),
        (
            not missing and settings.region not in _regions(),
            "region",
            settings.region,
            "AWS has no such Region.",
            "Use one such as us-east-1.",
        ),
        (
            settings.hosts == "namespace" and not namespaces(settings),
            "hosts",
            settings.hosts,
            "This machine allows no namespaces.",
            f"Use --hosts auto, or {_namespace_remedy()}.",
        ),
        (
            settings.images == "buildah" and not find_program("buildah"),
            "images",
            settings.images,
            "buildah is not installed.",
            "Use --images auto, or apt install buildah.",
        ),
        (
            not os.access(settings.container_python, os.X_OK),
            "container-python",
            str(settings.container_python),
            "This is not a program.",
            "Name a Python interpreter.",
        ),
    ]
    asked.extend(
        (not 0 <= seconds < math.inf, name, seconds, "Seconds of at least 0 are needed.", "Change it.")
        for name, seconds in _seconds(settings)
    )
    refuse(
        Problem(rule="sandbox-settings", field=field, value=value, message=message, remedy=remedy)
        for wrong, field, value, message, remedy in asked
        if wrong
    )


def _seconds(settings: Settings) -> list[tuple[str, float]]:
    values = ((field.name, getattr(settings, field.name)) for field in fields(settings))
    return [(name.replace("_", "-"), value) for name, value in values if name.endswith("_seconds")]


def _regions() -> set[str]:
    import boto3

    session = boto3.session.Session()
    return {
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("ec2", partition_name=partition)
    }


@cache
def _works(command: tuple[str, ...]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
