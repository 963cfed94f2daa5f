"""What the demo shows: task states and training progress while it runs, a table at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from airflow_smd.cli.local_airflow import TaskState
from airflow_smd.domain.logs import raised
from airflow_smd.domain.metrics import Point, parse

STYLES = {
    "success": "green",
    "running": "cyan",
    "deferred": "magenta",
    "failed": "red",
    "upstream_failed": "red",
}
SHOWN = {
    "epoch": "epoch {:3.0f}",
    "loss": "loss {:.4f}",
    "accuracy": "accuracy {:.3f}",
    "samples_per_second": "{:,.0f} samples/s",
}
BRIEF = ("queued", "scheduled")
"""States on the way to the next one."""
KEPT_LINES = 5000


class Screen:
    """A terminal that shows one run; without a terminal it prints a line for each change."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._started = time.monotonic()
        self._tasks: dict[str, TaskState] = {}
        self._told: set[tuple[str, int, str | None]] = set()
        self._point: Point | None = None
        self._printed_epoch = 0.0
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)

    def say(self, text: str) -> None:
        """Print one line with the seconds since the start."""
        self._console.print(
            f"{time.monotonic() - self._started:6.1f} s  {text}", markup=False, soft_wrap=True
        )

    @contextmanager
    def live(self) -> Iterator[None]:
        """Keep the task table on the terminal while the block runs."""
        if not self._console.is_terminal:
            yield
            return
        with Live(get_renderable=self._picture, console=self._console, refresh_per_second=4, transient=True):
            yield

    def tasks(self, tasks: Sequence[TaskState]) -> None:
        """Take the states of a run and say what is new: each state of a try once."""
        for task in tasks:
            before = self._tasks.get(task.task_id)
            if task.state in BRIEF and before and before.state and before.try_number == task.try_number:
                continue  # around a deferral
            self._tasks[task.task_id] = task
            news = (task.task_id, task.try_number, task.state)
            if task.state and task.state not in BRIEF and news not in self._told:
                self._told.add(news)
                self.say(f"{task.task_id:20} {task.state}")

    def log_line(self, line: str) -> None:
        """Take a line of the run's log; a line of training progress is shown."""
        self._lines.append(line)
        point = parse(line)
        if point is None:
            return
        self._point = point
        epoch = point.values.get("epoch", 0.0)
        if epoch > self._printed_epoch:
            self._printed_epoch = epoch
            self.say(f"{'train':20} {_numbers(point)}")

    def failure(self) -> str:
        """Return which tasks failed, and the first error of the log."""
        failed = [name for name, task in self._tasks.items() if task.state == "failed"]
        where = f"{', '.join(failed)} failed" if failed else "the run failed before any task"
        return "\n".join([f"{where}:", *(raised(list(self._lines)) or list(self._lines)[-20:])])

    def report(self, report: Mapping[str, Any], seconds: float) -> None:
        """Print the final table."""
        table = Table(title="smd_retrain", show_header=False, title_justify="left")
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in report["summary"].items():
            table.add_row(name, str(value))
        table.add_row("Seconds, DAG run", f"{seconds:.1f}")
        self._console.print(table)

    def _picture(self) -> Group:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for task in self._tasks.values():
            table.add_row(
                task.task_id, Text(task.state or "waiting", style=STYLES.get(task.state or "", "dim"))
            )
        if not self._point:
            return Group(table)
        values = self._point.values
        bar = ProgressBar(total=values.get("steps", 1), completed=values.get("step", 0), width=20)
        progress = Table.grid(padding=(0, 2, 0, 0))
        progress.add_row(bar, Text(_numbers(self._point)))
        return Group(table, progress)


def _numbers(point: Point) -> str:
    return "  ".join(text.format(point.values[name]) for name, text in SHOWN.items() if name in point.values)
