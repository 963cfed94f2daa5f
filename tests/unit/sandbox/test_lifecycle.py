from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from airflow_smd.sandbox import lifecycle
from airflow_smd.sandbox.__main__ import main
from airflow_smd.sandbox.runtime import Settings


def test_process_that_serves_is_found_by_its_home(tmp_path: Path) -> None:
    lifecycle.note_running(Settings(home=tmp_path, region="eu-west-1"), "http://127.0.0.1:4711")

    found = lifecycle.running(tmp_path)

    assert found
    assert found.process.pid == os.getpid()
    assert found.environment()["AWS_DEFAULT_REGION"] == "eu-west-1"
    connection = json.loads(found.environment()["AIRFLOW_CONN_AWS_DEFAULT"])
    assert connection["extra"]["endpoint_url"] == "http://127.0.0.1:4711"
    assert lifecycle.remembered_port(tmp_path) == 4711


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("[]", id="a list"),
        pytest.param('{"pid": 1}', id="half of it"),
        pytest.param(
            json.dumps({"pid": os.getpid(), "started": "long ago", "endpoint_url": "", "settings": {}}),
            id="a number that another process has now",
        ),
    ],
)
def test_file_that_tells_of_no_sandbox_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "sandbox.json").write_text(content)

    assert lifecycle.running(tmp_path) is None


def test_home_can_be_named_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW_SMD_SANDBOX_HOME", str(tmp_path))

    assert lifecycle.default_home() == tmp_path


def test_new_home_has_no_port(tmp_path: Path) -> None:
    assert lifecycle.remembered_port(tmp_path) == 0


def test_interrupted_write_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    lifecycle.write_atomically(path, b"old")

    with pytest.raises(TypeError):
        lifecycle.write_atomically(path, "not bytes")  # type: ignore[arg-type]

    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["fault", "list"], id="asked for faults"),
        pytest.param(["calls"], id="asked for calls"),
    ],
)
def test_sandbox_that_does_not_run_is_named_with_the_way_to_start_it(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, f"--home={tmp_path}"]) == 1

    assert "start it with `airflow-smd sandbox up`" in capsys.readouterr().err


def test_settings_travel_to_the_server_unchanged(tmp_path: Path) -> None:
    from airflow_smd.sandbox import __main__ as program

    settings = Settings(home=tmp_path, hosts="process", file_system_seconds=0.25, region="eu-west-1")
    arguments = program._parser().parse_args(["serve", *lifecycle.arguments(settings, 4711)])

    assert program._settings(arguments) == settings
    assert arguments.port == 4711
