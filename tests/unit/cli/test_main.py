"""The command line itself: help, wrong usage, refusals."""

import fcntl

import pytest

from airflow_smd.cli import COMMANDS, main


def ended(argv, capfd):
    try:
        code = main(argv)
    except SystemExit as left:
        code = left.code
    said = capfd.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capfd):
    code, said, _ = ended([command, "--help"], capfd)

    assert code == 0
    assert f"usage: airflow-smd {command}" in said


def test_help_keeps_proper_names(capfd):
    assert "retraining DAG" in ended(["demo", "--help"], capfd)[1]
    assert "fault" in ended(["sandbox", "--help"], capfd)[1]


@pytest.mark.parametrize("argv", [[], ["no-such-command"], ["lint"], ["sandbox"]])
def test_wrong_usage_ends_with_2_and_says_what_is_wanted(argv, capfd):
    code, _, said = ended(argv, capfd)

    assert code == 2
    assert "usage: airflow-smd" in said


@pytest.mark.parametrize("conf", ['{"nodes": ', "[1]", "4"])
def test_params_that_are_no_json_object_are_refused_before_anything_starts(conf, capfd, tmp_path):
    code, _, said = ended(["demo", "--conf", conf, "--home", str(tmp_path / "home")], capfd)

    assert code == 1
    assert f"--conf={conf!r}" in said
    assert "Write it like" in said
    assert not (tmp_path / "home").exists()


def test_a_demo_in_a_home_that_another_one_uses_is_refused(capfd, tmp_path):
    with (tmp_path / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        code, _, said = ended(["demo", "--home", str(tmp_path)], capfd)

    assert code == 1
    assert f"another demo runs in {tmp_path}" in said


def test_a_demo_without_a_home_is_refused(capfd, tmp_path):
    (tmp_path / "file").touch()

    code, _, said = ended(["demo", "--home", str(tmp_path / "file")], capfd)

    assert code == 1
    assert "choose another" in said
