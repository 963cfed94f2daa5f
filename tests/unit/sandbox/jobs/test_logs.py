"""Lines on their way to CloudWatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from airflow_smd.sandbox.jobs.logs import JobLog


class Sink:
    """Takes what a log sends."""

    def __init__(self) -> None:
        self.streams: list[str] = []
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self.points: list[tuple[str, float]] = []

    def open_log(self, group: str, stream: str) -> None:
        self.streams.append(stream)

    def put_logs(self, group: str, stream: str, events: Sequence[Mapping[str, Any]]) -> None:
        self.events += [(stream, event) for event in events]

    def put_metrics(
        self, namespace: str, points: Sequence[tuple[str, float, float, Mapping[str, str], str]]
    ) -> None:
        self.points += [(point[0], point[1]) for point in points]


def log(*definitions: tuple[str, str]) -> tuple[JobLog, Sink]:
    sink = Sink()
    made = JobLog(sink, "group", "job", [{"Name": name, "Regex": regex} for name, regex in definitions])  # type: ignore[arg-type]
    made.open(["algo-1", "algo-2"])
    return made, sink


def test_each_host_has_a_stream_and_its_lines_keep_their_order() -> None:
    made, sink = log()
    for number in range(3):
        made.line("algo-1", f"one {number}")
        made.line("algo-2", f"two {number}")

    made.flush()
    made.flush()

    assert [stream.rpartition("-")[0] for stream in sink.streams] == ["job/algo-1", "job/algo-2"]
    first = [event for stream, event in sink.events if stream.startswith("job/algo-1")]
    assert [event["message"] for event in first] == ["one 0", "one 1", "one 2"]
    assert [event["timestamp"] for event in first] == sorted(event["timestamp"] for event in first)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        pytest.param("loss=0.5;", [("loss", 0.5)], id="a number"),
        pytest.param("loss=1e-3;", [("loss", 0.001)], id="an exponent"),
        pytest.param("loss=nan;", [], id="not a number"),
        pytest.param("loss=;", [], id="nothing"),
        pytest.param("accuracy=1;", [], id="another line"),
    ],
)
def test_metric_is_the_first_group_of_its_expression(line: str, found: list[tuple[str, float]]) -> None:
    made, sink = log(("loss", "loss=(.*?);"))
    made.line("algo-1", line)

    made.flush()

    assert sink.points == found


def test_expression_that_is_none_finds_nothing() -> None:
    made, sink = log(("loss", "loss=(("), ("groupless", "loss"))
    made.line("algo-1", "loss=1")

    made.flush()

    assert sink.points == []
    assert made.final_metrics == {}


def test_empty_line_is_kept_and_a_huge_one_cut() -> None:
    """CloudWatch refuses an empty message and one above 256 KiB."""
    made, sink = log()
    made.line("algo-1", "")
    made.line("algo-1", "x" * 300_000)

    made.flush()

    assert [len(event["message"]) for _, event in sink.events] == [1, 256 * 1024 - 26]
