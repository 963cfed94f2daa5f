import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import airflow_smd.container
from airflow_smd.container.report import report


@pytest.fixture
def said(capsys):
    """Report, and return the line that came out."""

    def say(**numbers):
        report(**numbers)
        return capsys.readouterr().out

    return say


def test_the_line_has_a_fixed_head_and_order(said):
    line = said(accuracy=0.95, loss=0.25131234, steps=690, step=120, epoch=3)

    assert re.fullmatch(r"smd: epoch=3 step=120 steps=690 loss=0\.251312 accuracy=0\.95 seconds=\S+\n", line)


def test_what_is_not_known_is_left_out(said):
    assert "loss" not in said(epoch=1, loss=None, accuracy=None)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        pytest.param(123456789, "123456789", id="a whole number in full"),
        pytest.param(1e-9, "1e-09", id="a tiny number"),
        pytest.param(float("nan"), "nan", id="a loss that diverged"),
        pytest.param(float("-inf"), "-inf", id="an infinite number"),
        pytest.param("0.5", "0.5", id="a number as text"),
    ],
)
def test_numbers_are_written_so_that_all_readers_understand(said, number, text):
    assert said(loss=number).split()[1] == f"loss={text}"


def test_numbers_of_numpy_are_numbers(said):
    numpy = pytest.importorskip("numpy")

    assert "loss=0.5 " in said(loss=numpy.float32(0.5))
    assert "step=7 " in said(step=numpy.int64(7))


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        pytest.param({"phase": "warm up"}, "phase='warm up'", id="a word is not a metric"),
        pytest.param({"loss": [1, 2]}, r"loss=\[1, 2\]", id="a list is not a metric"),
        pytest.param({"Top-5": 1.0}, "Top-5", id="a name that a regex would trip over"),
    ],
)
def test_what_is_no_metric_is_named(numbers, named):
    with pytest.raises(ValueError, match=named):
        report(**numbers)


def test_a_line_arrives_at_once_and_whole():
    """A pipe is block-buffered, and a killed process loses its buffer."""
    script = "import os; from airflow_smd.container.report import report; report(epoch=1); os._exit(9)"

    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert (result.returncode, result.stdout[:12]) == (9, "smd: epoch=1")


@pytest.mark.parametrize(
    "path", sorted(Path(airflow_smd.container.__path__[0]).glob("*.py")), ids=lambda path: path.name
)
def test_container_code_is_written_for_python_3_9(path):
    """AWS's images for older frameworks have it."""
    ast.parse(path.read_text(), feature_version=(3, 9))
