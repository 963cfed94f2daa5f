import pytest

from airflow_smd.domain.logs import LATE_SECONDS, LogLine, LogNews, first_error, raised, rank_and_text


def lines(*texts: str, host: str = "algo-1", at: float = 0.0) -> list[LogLine]:
    """Return lines a second apart, each with a name of its own."""
    return [
        LogLine(host=host, at=at + second, text=text, id=f"{host}:{at + second}")
        for second, text in enumerate(texts)
    ]


def texts(found: list[LogLine]) -> list[str]:
    return [line.text for line in found]


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
    found = first_error(
        lines(
            "epoch 1",
            "[1,mpirank:1,algo-1]<stderr>:Traceback (most recent call last):",
            '[1,mpirank:1,algo-1]<stderr>:  File "train.py", line 3',
            "[1,mpirank:1,algo-1]<stderr>:ValueError: shape mismatch",
            "MPI_ABORT was invoked on rank 1: with errorcode 1.",
            "ExecuteUserScriptError: ExitCode 1",
        )
    )

    assert "ValueError: shape mismatch" in texts(found)
    assert found[1].text == "Traceback (most recent call last):"


def test_a_traceback_is_given_whole_and_without_what_other_hosts_wrote_meanwhile():
    frames = [f'  File "deep.py", line {number}' for number in range(40)]
    failing = lines("Traceback (most recent call last):", *frames, "OSError: disk", host="algo-2")
    going_on = lines(*(f"step {step}" for step in range(42)), host="algo-3")
    mixed = sorted([*failing, *going_on], key=lambda line: line.at)

    found = first_error(mixed)

    assert {line.host for line in found} == {"algo-2"}
    assert found[-1].text == "OSError: disk"
    assert len(found) == 42


def test_of_many_hosts_the_first_to_fail_is_told():
    late = lines("RuntimeError: NCCL peer is gone", host="algo-1", at=9.0)
    first = lines("ValueError: bad batch", host="algo-77", at=5.0)

    assert texts(first_error([*first, *late]))[0] == "ValueError: bad batch"


def test_a_log_without_an_error_has_none():
    assert first_error(lines("epoch 1 loss=0.3", "MPI_ABORT was invoked on rank 1: with errorcode 1.")) == []


def test_rank_0_is_shown_in_full_even_where_it_repeats_itself():
    assert LogNews(since=0.0).shown(lines("step 1", "step 1")) == ["algo-1 | step 1", "algo-1 | step 1"]


def test_what_other_ranks_repeat_is_counted():
    news = LogNews(since=0.0)
    said = lines(
        "[1,mpirank:0,algo-1]<stdout>:step 1 loss=0.5",
        "[1,mpirank:1,algo-1]<stdout>:step 1 loss=0.25e-3",
        "[1,mpirank:2,algo-1]<stdout>:step 1 loss=1.5",
        "[1,mpirank:2,algo-1]<stdout>:step 2 loss=1.5",
    )

    assert news.shown(said) == [
        "algo-1 | step 1 loss=0.5",
        "(3 lines like these from 2 other ranks or hosts)",
    ]


def test_what_only_another_rank_says_is_shown_once_with_its_host_and_rank():
    news = LogNews(since=0.0)
    odd = "[1,mpirank:9,algo-2]<stdout>:loss=nan"

    first = news.shown([*lines("loss=1"), *lines(odd, host="algo-2")])
    again = news.shown(lines(odd, host="algo-2", at=5.0))

    assert first == ["algo-1 | loss=1", "algo-2 rank 9 | loss=nan"]
    assert again == ["(1 lines like these from 1 other ranks or hosts)"]


def test_lines_of_one_time_are_neither_lost_nor_repeated():
    news = LogNews(since=0.0)
    a, b, c = (LogLine(host="algo-1", at=7.0, text=name, id=name) for name in "abc")

    assert news.shown([a, b]) == ["algo-1 | a", "algo-1 | b"]
    assert news.shown([a, b, c]) == ["algo-1 | c"]


def test_a_line_that_comes_in_late_is_still_shown():
    news = LogNews(since=0.0)
    news.shown(lines("new", at=100.0))
    late = lines("late", at=101.0 - LATE_SECONDS)

    assert news.since <= late[0].at
    assert news.shown(late) == ["algo-1 | late"]


def test_a_line_at_the_very_beginning_of_what_is_read_again_is_not_repeated():
    news = LogNews(since=0.0)
    first, newest = lines("a", at=108.002), lines("b", at=128.002)
    news.shown([*first, *newest])

    assert round(1000 * news.since) == round(1000 * first[0].at)
    assert news.shown(first) == []


def test_another_process_goes_on_where_the_cursor_stands():
    news = LogNews(since=0.0)
    a, b, c = (LogLine(host="algo-1", at=7.0, text=name, id=name) for name in "abc")
    news.shown([a, b])

    assert LogNews(**news.cursor).shown([a, b, c, *lines("d", at=8.0)]) == ["algo-1 | c", "algo-1 | d"]


def test_lines_from_before_the_start_are_left_out():
    assert LogNews(since=5.0).shown(lines("old", "new", at=4.0)) == ["algo-1 | new"]


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
