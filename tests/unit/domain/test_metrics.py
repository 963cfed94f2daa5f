import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_smd.container.report import report
from airflow_smd.domain.metrics import (
    METRIC_DEFINITIONS,
    Point,
    check_definitions,
    parse,
    patterns,
    progress,
    series,
    thin,
)
from airflow_smd.errors import Severity

LINE = "smd: epoch=2 step=40 steps=100 loss=0.5 samples_per_second=1234.5 accuracy=0.9 seconds=8.5"


def point(step, at, **values):
    return Point(values={"step": step, "steps": 100.0, **values}, at_seconds=at)


def test_what_report_prints_is_what_parse_reads(capsys):
    report(epoch=2, step=40, steps=100, loss=1.5e-7, samples_per_second=10312.4, accuracy=0.9511)

    values = dict(parse(capsys.readouterr().out).values)

    assert values.pop("seconds") > 0
    assert values == {
        "epoch": 2,
        "step": 40,
        "steps": 100,
        "loss": 1.5e-7,
        "samples_per_second": 10312.4,
        "accuracy": 0.9511,
    }


@pytest.mark.parametrize(
    ("prefix", "rank", "host"),
    [
        pytest.param("", None, None, id="nothing before it"),
        pytest.param("[1,mpirank:3,algo-2]<stdout>:", 3, "algo-2", id="SageMaker's mpirun prefix"),
        pytest.param("[1,0]<stdout>:", 0, None, id="Open MPI's own prefix"),
        pytest.param("2026-11-30T12:00:00.123Z ", None, None, id="a timestamp"),
        pytest.param("[default0]:", None, None, id="torchrun's prefix"),
        pytest.param("2026-11-30 12:00:00 INFO [1,mpirank:0,algo-1]<stdout>: ", 0, "algo-1", id="all of it"),
    ],
)
def test_what_stands_before_the_line_is_passed_over(prefix, rank, host):
    found = parse(prefix + LINE)

    assert (found.rank, found.host, found.values["loss"]) == (rank, host, 0.5)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("", id="an empty line"),
        pytest.param("loss=0.5 epoch=2", id="another program's metrics"),
        pytest.param("smd: starting", id="words after our head"),
        pytest.param("rsmd: loss=0.5", id="a head that ends like ours"),
        pytest.param("smd: loss=0.5.2 epoch=two", id="no number"),
    ],
)
def test_a_line_without_metrics_is_no_point(line):
    assert parse(line) is None


def test_a_loss_that_diverged_is_read():
    assert math.isnan(parse("smd: loss=nan").values["loss"])


def test_the_lines_own_clock_is_preferred_to_the_logs():
    assert parse(LINE, at_seconds=99.0).at_seconds == 8.5
    assert parse("smd: loss=1", at_seconds=99.0).at_seconds == 99.0


def test_a_users_own_expression_is_read_too():
    others = patterns([{"Name": "perplexity", "Regex": r"ppl\s+(\S+)"}])

    assert parse("step 3 | ppl 12.5", others=others).values == {"perplexity": 12.5}
    assert parse("step 3 | ppl n/a", others=others) is None


@pytest.mark.parametrize("definition", METRIC_DEFINITIONS, ids=lambda definition: definition["Name"])
def test_sagemaker_reads_the_same_number_as_we(definition):
    name = definition["Name"]
    line = f"smd: other_{name}=7 {name}=0.25 more_{name}=8"

    assert re.search(definition["Regex"], line)[1] == "0.25"
    assert parse(line).values[name] == 0.25


def test_our_definitions_are_within_sagemakers_limits():
    assert check_definitions(METRIC_DEFINITIONS, "metric_definitions") == []


@pytest.mark.parametrize(
    ("definitions", "field", "severity"),
    [
        pytest.param([{"Name": "a", "Regex": "x=(1)"}] * 41, "m", Severity.ERROR, id="41 of them"),
        pytest.param([{"Name": "", "Regex": "x=(1)"}], "m[0].Name", Severity.ERROR, id="an empty name"),
        pytest.param([{"Name": "a"}], "m[0].Regex", Severity.ERROR, id="no expression"),
        pytest.param(
            [{"Name": "a", "Regex": "(" * 501}], "m[0].Regex", Severity.ERROR, id="a long expression"
        ),
        pytest.param([{"Name": "a", "Regex": "x=1"}], "m[0].Regex", Severity.ERROR, id="no group"),
        pytest.param([{"Name": "a", "Regex": "x=(1"}], "m[0].Regex", Severity.WARNING, id="not Python's"),
    ],
)
def test_bad_definitions_are_named(definitions, field, severity):
    (problem,) = check_definitions(definitions, "m")

    assert (problem.field, problem.severity) == (field, severity)


def test_progress_foretells_the_end_from_the_pace():
    points = [point(10.0, 5.0), point(20.0, 6.0), point(40.0, 8.0, epoch=2.0, loss=0.5)]

    found = progress(points)

    assert (found.fraction, found.remaining_seconds, found.epoch) == (0.4, pytest.approx(6.0), 2)
    assert str(found) == "epoch 2, step 40 of 100, 40%, loss 0.5, 6 s left"


def test_a_slow_start_does_not_spoil_the_pace():
    points = [point(1.0, 100.0), *(point(float(step), 100.0 + step) for step in range(2, 50))]

    assert progress(points, window=10).remaining_seconds == pytest.approx(51.0)


def test_after_a_restart_only_the_new_run_tells_the_pace():
    """The second process's clock began anew, at the step of the checkpoint."""
    points = [point(40.0, 400.0), point(60.0, 600.0), point(51.0, 1.0), point(60.0, 10.0)]

    assert progress(points).remaining_seconds == pytest.approx(40.0)


def test_one_point_tells_no_pace():
    assert progress([point(10.0, 5.0)]).remaining_seconds is None


def test_the_lowest_rank_speaks_for_all():
    points = [
        Point(values={"step": 9.0}, rank=1),
        Point(values={"step": 5.0}, rank=0),
        Point(values={"step": 8.0}, rank=1),
    ]

    assert progress(points).step == 5


def test_a_loss_of_nan_is_told_and_not_hidden():
    points = [point(1.0, 1.0, loss=0.5), point(2.0, 2.0, loss=math.nan)]

    assert math.isnan(progress(points).loss)


def test_without_points_there_is_no_progress():
    assert progress([]) is None


def test_a_series_takes_the_points_that_have_both():
    points = [point(1.0, 0.0, loss=3.0), point(2.0, 0.0), Point(values={"loss": 1.0})]

    assert series(points, "loss") == [(1.0, 3.0)]


@given(st.lists(st.floats(allow_nan=False, width=32), max_size=200), st.integers(min_value=4, max_value=50))
def test_thinning_keeps_order_ends_and_extremes(heights, at_most):
    pairs = [(float(x), y) for x, y in enumerate(heights)]

    kept = thin(pairs, at_most)

    assert len(kept) <= at_most or len(kept) == len(pairs)
    assert kept == sorted(kept, key=lambda pair: pair[0])
    if pairs:
        assert (kept[0], kept[-1]) == (pairs[0], pairs[-1])
        assert max(y for _, y in kept) == max(heights)
        assert min(y for _, y in kept) == min(heights)


def test_thinning_keeps_a_nan_visible():
    pairs = [(float(x), math.nan if x == 517 else 1.0) for x in range(1000)]

    assert any(math.isnan(y) for _, y in thin(pairs, 20))


def test_too_few_points_to_plot_are_refused():
    with pytest.raises(ValueError, match="at_most=3"):
        thin([(0.0, 0.0)] * 10, 3)
