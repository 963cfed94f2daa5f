from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from airflow_smd.errors import InvalidInput
from airflow_smd.sandbox.capabilities import capabilities, check_settings, find_program, namespaces
from airflow_smd.sandbox.runtime import Settings


def test_what_is_missing_says_what_it_costs_and_how_to_get_it() -> None:
    missing = [
        one for one in capabilities(Settings(home=Path(), hosts="process", images="python")) if not one.used
    ]

    assert {"Hosts", "Images"} <= {one.name for one in missing}
    assert all(one.left_out and one.install for one in missing)


def test_each_capability_is_one_line() -> None:
    lines = [str(one) for one in capabilities(Settings(home=Path()))]

    assert all(line and "\n" not in line for line in lines)


def test_no_namespaces_where_plain_processes_are_asked_for() -> None:
    assert namespaces(Settings(home=Path(), hosts="process")) == ""


def test_program_for_administrators_is_found_without_their_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert find_program("no-such-program-anywhere") == ""
    if Path("/usr/sbin/sshd").exists():
        assert find_program("sshd") == "/usr/sbin/sshd"


def test_python_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="container-python"):
        check_settings(Settings(home=tmp_path, container_python=tmp_path / "python"))


def test_default_settings_suit_every_machine(tmp_path: Path) -> None:
    check_settings(Settings(home=tmp_path, container_python=Path(sys.executable)))


def test_all_impossible_settings_are_named_at_once(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path, region="us-east-99", file_system_seconds=-1, stop_grace_seconds=math.nan
    )

    with pytest.raises(InvalidInput) as refused:
        check_settings(settings)

    assert {problem.field for problem in refused.value.problems} == {
        "region",
        "file-system-seconds",
        "stop-grace-seconds",
    }
