"""A buildspec's commands run for real, one after the other, in one environment."""

from __future__ import annotations

import threading

import pytest

from airflow_smd.sandbox.buildspec import BuildspecError, Interrupted, Shell, parse_buildspec
from airflow_smd.sandbox.children import Children


@pytest.fixture
def shell(tmp_path) -> Shell:
    lines: list[str] = []
    return Shell(
        children=Children(tmp_path / "children"),
        directory=tmp_path,
        state=tmp_path / "state",
        environment={"PATH": "/usr/bin:/bin", "GIVEN": "yes"},
        write=lines.append,
    )


def output(shell: Shell) -> list[str]:
    return shell.write.__self__  # type: ignore[attr-defined]


def test_yaml_and_json_mean_the_same():
    yaml = "version: 0.2\nenv:\n  variables:\n    A: 1\nphases:\n  build:\n    commands:\n      - make\n"

    assert parse_buildspec(yaml) == parse_buildspec(
        '{"version": 0.2, "env": {"variables": {"A": "1"}}, "phases": {"build": {"commands": ["make"]}}}'
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("version: 0.2", id="no phases"),
        pytest.param("phases:\n  build:\n    commands: [a]", id="no version"),
        pytest.param("version: 0.2\nphases:\n  biuld:\n    commands: [a]", id="a phase that does not exist"),
        pytest.param("version: 0.2\nphases:\n  build:\n    commands: make", id="commands that are no list"),
        pytest.param("a: [", id="no YAML"),
    ],
)
def test_what_is_no_buildspec_is_refused(text):
    with pytest.raises(BuildspecError, match="YAML_FILE_ERROR"):
        parse_buildspec(text)


def test_a_command_sees_what_earlier_ones_exported_and_where_they_went(shell, tmp_path):
    (tmp_path / "deep").mkdir()
    shell.run("export WHO='a b' && cd deep", {})

    code = shell.run('echo "$WHO $GIVEN $EXTRA" && basename "$PWD"', {"EXTRA": "1"})

    assert (code, output(shell)) == (0, ["a b yes 1", "deep"])


def test_the_exit_code_is_the_commands_own(shell):
    assert shell.run("exit 7", {}) == 7


def test_errors_and_output_come_in_the_order_in_which_they_are_written(shell):
    shell.run("echo one; echo two >&2; echo three", {})

    assert output(shell) == ["one", "two", "three"]


def test_an_interrupted_command_ends_with_what_it_started(shell):
    threading.Timer(0.3, shell.interrupt).start()

    with pytest.raises(Interrupted):
        shell.run("sleep 600 & sleep 600", {})

    assert shell.children.noted() == []


def test_after_an_interruption_no_command_begins(shell):
    shell.interrupt()

    with pytest.raises(Interrupted):
        shell.run("echo too late", {})

    assert output(shell) == []
