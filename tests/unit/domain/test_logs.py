import pytest

from airflow_smd.domain.logs import first_error, raised, rank_and_text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("[1,mpirank:3,algo-2]<stdout>:loss=1", (3, "loss=1"), id="as the toolkit rewrites it"),
        pytest.param("[1,0]<stderr>:Traceback", (0, "Traceback"), id="as mpirun tags it"),
        pytest.param("loss=1 [1,2]", (None, "loss=1 [1,2]"), id="no tag"),
    ],
)
def test_rank_is_read_from_the_launchers_tag(line, expected):
    assert rank_and_text(line) == expected


def test_the_first_error_is_the_scripts_own_not_the_launchers():
    lines = [
        "epoch 1",
        "[1,mpirank:1,algo-1]<stderr>:Traceback (most recent call last):",
        '[1,mpirank:1,algo-1]<stderr>:  File "train.py", line 3',
        "[1,mpirank:1,algo-1]<stderr>:ValueError: shape mismatch",
        "MPI_ABORT was invoked on rank 1: with errorcode 1.",
        "ExecuteUserScriptError: ExitCode 1",
    ]

    found = first_error(lines)

    assert "ValueError: shape mismatch" in found
    assert found[1] == "Traceback (most recent call last):"


def test_a_log_without_an_error_has_none():
    assert first_error(["epoch 1 loss=0.3", "MPI_ABORT was invoked on rank 1: with errorcode 1."]) == []


AIRFLOW_LOG = """\
2026-12-01T01:13:01.358438Z [warning  ] hyperparameters=[]: the learning rate should follow.
2026-12-01T01:13:46.686384Z [error    ] Task failed with exception     [task] loc=task_runner.py:1639
Traceback (most recent call last):
  File "task.py", line 3, in look
    found = entries[name]
KeyError: 'x'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "task.py", line 9, in execute
    refuse(problems)
airflow_smd.errors.InvalidInput: 1 problem found before anything was created:
  - nodes=0: At least 1 is needed. [nodes]
2026-12-01T01:13:46.687153Z [info     ] ::group::Post Execute          [task] loc=task_runner.py:1640
Traceback (most recent call last):
ValueError: a later one
"""


def test_what_a_task_raised_is_told_without_frames_and_causes():
    assert raised(AIRFLOW_LOG.splitlines()) == [
        "InvalidInput: 1 problem found before anything was created:",
        "  - nodes=0: At least 1 is needed. [nodes]",
    ]


def test_a_log_without_a_traceback_tells_of_nothing_raised():
    assert raised(["2026-12-01T01:13:46Z [info     ] done"]) == []
