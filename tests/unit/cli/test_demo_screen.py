"""What the demo prints without a terminal."""

import pytest

from airflow_smd.cli.demo_screen import Screen
from airflow_smd.cli.local_airflow import TaskState


def task(state, task_id="train", try_number=1):
    return TaskState(task_id=task_id, state=state, started_at=None, ended_at=None, try_number=try_number)


def said(capsys) -> list[str]:
    return [line.partition(" s  ")[2].strip() for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_each_state_of_a_try_is_told_once_and_brief_ones_never(screen, capsys):
    for state in (None, "queued", "running", "running", "deferred", "scheduled", "running", "success"):
        screen.tasks([task(state)])

    assert [line.split()[1] for line in said(capsys)] == ["running", "deferred", "success"]


def test_another_try_is_told_anew(screen, capsys):
    for try_number in (1, 2):
        screen.tasks([task("running", try_number=try_number)])

    assert len(said(capsys)) == 2


def test_progress_is_told_once_an_epoch_and_in_round_numbers(screen, capsys):
    for step in (1, 2):
        screen.log_line(
            f"algo-1 | smd: epoch=3 step={step} loss=0.26606912 accuracy=0.9375 samples_per_second=12345.6"
        )

    assert said(capsys) == ["train                epoch   3  loss 0.2661  accuracy 0.938  12,346 samples/s"]


def test_a_failure_names_the_task_and_what_it_raised(screen):
    screen.tasks([task("failed"), task("upstream_failed", "report")])
    for line in (
        "Traceback (most recent call last):",
        '  File "x"',
        "airflow_smd.errors.DataNotReadable: job: no",
    ):
        screen.log_line(line)

    assert screen.failure() == "train failed:\nDataNotReadable: job: no"


def test_a_failure_before_any_task_shows_the_end_of_the_log(screen):
    screen.log_line("no DAG of this name")

    assert screen.failure() == "the run failed before any task:\nno DAG of this name"


def test_the_report_fits_eighty_columns(screen, capsys):
    screen.report({"summary": {"Image": "registry/" + "x" * 200, "Why": "because"}}, seconds=1.5)

    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= 80
    assert any("Seconds, DAG run" in line and "1.5" in line for line in shown)
