"""Hosts started by hand: what is theirs alone, and what happens when they end."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_smd.sandbox.jobs.hosts import Bind, HostPlan, Isolation, Session, choose
from airflow_smd.sandbox.jobs.machines import Machine
from airflow_smd.sandbox.runtime import Runtime, Settings

ROOT = os.name == "posix" and os.geteuid() == 0 and shutil.which("ip")
NAMESPACES = pytest.mark.skipif(not ROOT, reason="needs root and iproute2")
EVERY = [
    pytest.param(Isolation.PROCESS, id="plain processes"),
    pytest.param(Isolation.NAMESPACE, id="namespaces", marks=NAMESPACES),
    pytest.param(Isolation.USER_NAMESPACE, id="user namespaces", marks=NAMESPACES),
]
APART = EVERY[1:]


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(settings=Settings(home=tmp_path), endpoint_url="http://127.0.0.1:45454")


def plans(directory: Path, scripts: Sequence[str], **more: Any) -> list[HostPlan]:
    """Return one host per shell script."""
    found = []
    for number, script in enumerate(scripts):
        machine = Machine(name=f"algo-{number + 1}", number=number, group="g", instance_type="ml.m5.large")
        ml = directory / machine.name / "ml"
        ml.mkdir(parents=True)
        values: dict[str, Any] = {"environment": {"PATH": os.defpath}, **more}
        binds = [Bind(source=ml, target="/opt/ml"), *values.pop("binds", [])]
        argv = ["/bin/sh", "-c", script]
        found.append(
            HostPlan(machine=machine, directory=directory / machine.name, argv=argv, binds=binds, **values)
        )
    return found


def run(
    runtime: Runtime, isolation: Isolation, scripts: Sequence[str], **more: Any
) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Run shell scripts as hosts of one job to their end; return exit codes and lines."""
    directory = runtime.directory("work")
    lines: dict[str, list[str]] = {}
    session = Session(
        runtime, isolation, directory, lambda host, line: lines.setdefault(host, []).append(line)
    )
    with session:
        session.start(plans(directory, scripts, **more))
        deadline = time.monotonic() + 20
        while len(session.codes) < len(scripts) and not session.broken and time.monotonic() < deadline:
            session.changed.wait(0.1)
            session.changed.clear()
    assert session.broken is None
    return session.codes, lines


@pytest.mark.parametrize("isolation", EVERY)
def test_output_and_exit_code_of_each_host_come_back(runtime: Runtime, isolation: Isolation) -> None:
    codes, lines = run(runtime, isolation, ["echo one; echo two >&2", "echo three; exit 5"])

    assert codes == {"algo-1": 0, "algo-2": 5}
    assert lines == {"algo-1": ["one", "two"], "algo-2": ["three"]}


@pytest.mark.parametrize("isolation", EVERY)
def test_program_that_does_not_exist_ends_as_in_a_shell(runtime: Runtime, isolation: Isolation) -> None:
    directory = runtime.directory("work")
    lines: list[str] = []
    [plan] = plans(directory, [""])
    missing = HostPlan(
        machine=plan.machine,
        directory=plan.directory,
        argv=["no-such-program"],
        environment={"PATH": os.defpath},
        binds=plan.binds,
    )
    with Session(runtime, isolation, directory, lambda _host, line: lines.append(line)) as session:
        session.start([missing])
        while not session.codes:
            session.changed.wait(0.1)

    assert session.codes == {"algo-1": 127}
    assert lines == ["exec: 'no-such-program': No such file or directory"]


@pytest.mark.parametrize("isolation", EVERY)
def test_leaving_a_session_ends_every_descendant(runtime: Runtime, isolation: Isolation) -> None:
    """Also those that left their parent's session."""
    directory, lines = runtime.directory("work"), []
    with Session(runtime, isolation, directory, lambda _host, line: lines.append(line)) as session:
        session.start(plans(directory, ["setsid sleep 98765 & sleep 98765 & echo ready; wait"]))
        while not lines:
            time.sleep(0.02)
        assert _running("98765")

    assert _gone("98765")


@pytest.mark.parametrize("isolation", EVERY)
def test_end_of_the_keeper_ends_the_hosts(runtime: Runtime, isolation: Isolation) -> None:
    directory, lines = runtime.directory("work"), []
    with Session(runtime, isolation, directory, lambda _host, line: lines.append(line)) as session:
        session.start(plans(directory, ["echo ready; sleep 98764"]))
        while not lines:
            time.sleep(0.02)
        assert session._keeper
        session._keeper.send_signal(signal.SIGKILL)

        assert _gone("98764")

    assert session.broken == "the keeper of the hosts has died"


@pytest.mark.parametrize("isolation", APART)
def test_hosts_meet_by_name_and_see_nothing_else(runtime: Runtime, isolation: Isolation) -> None:
    """A host has its own name, address and processes, knows the other host, and has no way out."""
    script = (
        "hostname; getent hosts algo-2 | cut -d' ' -f1; cat /etc/hostname; ls /proc | grep -c '^[0-9]';"
        " ip -o addr show eth0 | grep -o 'inet [0-9.]*'; ip route | wc -l"
    )
    _, lines = run(runtime, isolation, [script, "true"])

    name, other, written, processes, address, routes = lines["algo-1"]
    assert (name, other, written) == ("algo-1", "10.0.0.3", "algo-1")
    assert int(processes) < 6
    assert (address, routes) == ("inet 10.0.0.2", "1")


@pytest.mark.parametrize("isolation", APART)
def test_changes_of_a_host_stay_in_it(runtime: Runtime, isolation: Isolation) -> None:
    """It may write anywhere; this machine and the other host do not notice."""
    script = (
        "for d in etc tmp; do echo mine > /$d/smd-test; done; cat /etc/smd-test; ls -A /root/.ssh | wc -l"
    )
    keys = runtime.directory("keys")
    codes, lines = run(
        runtime,
        isolation,
        [script, "sleep 0.2; ls /etc/smd-test /tmp/smd-test 2>/dev/null | wc -l"],
        binds=[Bind(source=keys, target="/root/.ssh")],
    )

    assert codes == {"algo-1": 0, "algo-2": 0}
    assert lines == {"algo-1": ["mine", "0"], "algo-2": ["0"]}
    assert not Path("/etc/smd-test").exists()
    assert not Path("/tmp/smd-test").exists()


@pytest.mark.parametrize("isolation", APART)
def test_read_only_bind_cannot_be_written(runtime: Runtime, isolation: Isolation) -> None:
    data = runtime.directory("data")
    (data / "file").write_text("given")

    codes, lines = run(
        runtime,
        isolation,
        ["cat /opt/ml/input/data/train/file; echo; echo x > /opt/ml/input/data/train/new"],
        binds=[Bind(source=data, target="/opt/ml/input/data/train", read_only=True)],
    )

    assert codes["algo-1"] != 0
    assert lines["algo-1"][0] == "given"
    assert [path.name for path in data.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("/tmp", id="layers under /tmp"),
        pytest.param("/var/tmp", id="layers below what they cover"),
    ],
)
@pytest.mark.parametrize("isolation", APART)
def test_image_layers_lie_over_this_machines_root(runtime: Runtime, isolation: Isolation, place: str) -> None:
    base = Path(place) / f"smd-layers-{os.getpid()}"
    try:
        for number, text in enumerate(("lower", "upper")):
            for path in ("opt/program/which", "var/from-image", f"srv/only-{text}"):
                file = base / str(number) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"{text}\n")

        _, lines = run(
            runtime,
            isolation,
            ["cat /opt/program/which /var/from-image; ls /srv | sort; test -d /var/lib && echo machine"],
            layers=[base / "0", base / "1"],
        )
    finally:
        shutil.rmtree(base, ignore_errors=True)

    assert lines["algo-1"] == ["upper", "upper", "only-lower", "only-upper", "machine"]


@NAMESPACES
def test_machine_that_allows_namespaces_gets_them(runtime: Runtime) -> None:
    assert choose(runtime)[0] is Isolation.NAMESPACE
    assert not list(runtime.directory("jobs").iterdir())


def test_plain_processes_can_be_asked_for(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, hosts="process")

    assert choose(Runtime(settings=settings, endpoint_url="http://127.0.0.1:1"))[0] is Isolation.PROCESS


def _running(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            found.append(int(path.parent.name))
    return found


def _gone(mark: str) -> bool:
    deadline = time.monotonic() + 5
    while _running(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not _running(mark)
