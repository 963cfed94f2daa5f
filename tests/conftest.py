"""A running sandbox for every test that wants one, and no credentials of this machine for any."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_smd.sandbox import lifecycle
from airflow_smd.sandbox.children import Children
from airflow_smd.sandbox.control import Control
from airflow_smd.sandbox.runtime import ACCOUNT_ID

ISOLATION = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """A sandbox that runs in a process of its own."""

    home: Path
    endpoint_url: str
    pid: int
    control: Control
    account_id: str = ACCOUNT_ID
    region: str = "us-east-1"
    _clients: dict[str, Any] = field(default_factory=dict)

    def client(self, service: str, **options: Any) -> Any:
        """Return a boto3 client of it; without options the same one each time."""
        import boto3

        if options or service not in self._clients:
            options = {"endpoint_url": self.endpoint_url, "region_name": self.region, **options}
            client = boto3.client(service, **options)
            return self._clients.setdefault(service, client) if len(options) == 2 else client
        return self._clients[service]

    @property
    def environment(self) -> dict[str, str]:
        """Return what a process needs in its environment to reach it through Airflow and boto3."""
        found = lifecycle.running(self.home)
        assert found, "the sandbox is gone"
        return found.environment()

    @property
    def role_arn(self) -> str:
        """Return the role that jobs may assume."""
        return f"arn:aws:iam::{self.account_id}:role/SageMakerRole"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `needs(tool, ...)` where a program or package is missing, and say which."""
    for tool in (tool for marker in item.iter_markers("needs") for tool in marker.args):
        if not shutil.which(tool) and not importlib.util.find_spec(tool):
            pytest.skip(f"needs {tool}, which is not installed here")


@pytest.fixture(scope="session", autouse=True)
def _no_credentials_of_this_machine() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            environment.delenv(name)
        for name, value in ISOLATION.items():
            environment.setenv(name, value)
        yield


def start_sandbox(home: Path, *options: str) -> Sandbox:
    """Run `sandbox up` as a user would."""
    command = [sys.executable, "-m", "airflow_smd.sandbox", "up", f"--home={home}", *options]
    started = subprocess.run(command, capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    found = lifecycle.running(home)
    assert found, "up says that it runs, but it does not"
    control = Control(found.endpoint_url)
    return Sandbox(home=home, endpoint_url=found.endpoint_url, pid=found.process.pid, control=control)


def stop_sandbox(home: Path) -> None:
    """Run `sandbox down` and check that nothing is left."""
    found = lifecycle.running(home)
    children = Children(home / "children").noted()
    command = [sys.executable, "-m", "airflow_smd.sandbox", "down", f"--home={home}"]
    subprocess.run(command, capture_output=True, check=True)
    started = [*children, *([found.process] if found else [])]
    assert not [process.pid for process in started if process.alive()], "down left processes behind"


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Return a sandbox that lives as long as the tests run, on a free port, quicker than the usual one."""
    home = tmp_path_factory.mktemp("sandbox")
    yield start_sandbox(home, "--file-system-seconds=0.5", "--stop-grace-seconds=3")
    stop_sandbox(home)
