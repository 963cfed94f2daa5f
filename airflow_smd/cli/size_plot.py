"""The plan as a picture: epoch time and cost against capacity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_smd.domain.lustre import Forecast, LustrePlan, curve
from airflow_smd.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from airflow_smd.domain.cost import Prices
    from airflow_smd.domain.lustre import Facts, Need

_FIRST, _SECOND, _LAST, _CHOSEN, _QUIET = "#c44e52", "#dd8452", "#4c72b0", "#111111", "#8c8c8c"


def draw(path: Path, need: Need, chosen: LustrePlan, *, facts: Facts, prices: Prices) -> None:
    """Write the picture of `chosen` and the other sizes of its kind to `path`.

    Raises InvalidInput where matplotlib is missing or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidInput(
            [_problem("plot-extra", path, "needs matplotlib.", "pip install 'airflow-smd[plot]'.")]
        ) from error
    sizes = curve(need, chosen, facts=facts, prices=prices)
    figure = Figure(figsize=(8.4, 7.2), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True)
    _epochs(upper, need, chosen, sizes)
    _money(lower, chosen, sizes)
    kind = chosen.name.partition(",")[0]
    figure.suptitle(
        f"{kind} for {need.dataset_bytes / 1e9:,.4g} GB, {need.nodes} nodes, {need.epochs} epochs of "
        f"{need.compute_seconds:,.4g} s",
        fontsize=12,
    )
    lower.set_xlabel("Storage capacity (GiB)")
    lower.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            [_problem("plot-unwritable", path, f"cannot be written: {error}.", "Give a path as in size.png.")]
        ) from error


def _problem(rule: str, path: Path, message: str, remedy: str) -> Problem:
    return Problem(rule=rule, field="--plot", value=str(path), message=message, remedy=remedy)


def _epochs(axes: Any, need: Need, chosen: LustrePlan, sizes: tuple[Forecast, ...]) -> None:
    capacity = [one.storage_capacity_gib for one in sizes]
    shown = len(chosen.epoch_seconds)
    lines = {
        0: ("epoch 1, nothing cached", _FIRST),
        1: ("epoch 2", _SECOND),
        shown - 1: (f"epoch {shown}", _LAST),
    }
    for number, (label, colour) in lines.items():
        if number < shown:
            values = [one.epoch_seconds[number] for one in sizes]
            axes.plot(capacity, values, "o-", color=colour, label=label, markersize=3.5, linewidth=1.6)
    axes.axhline(need.compute_seconds, color=_QUIET, linestyle="--", linewidth=1, zorder=0)
    axes.annotate(
        f"compute alone: {need.compute_seconds:.4g} s",
        (1, need.compute_seconds),
        xycoords=("axes fraction", "data"),
        xytext=(-4, -12),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
        color=_QUIET,
    )
    first = chosen.epoch_seconds[0]
    axes.plot(chosen.storage_capacity_gib, first, "D", color=_CHOSEN, markersize=8, zorder=5)
    axes.annotate(
        f"chosen: {chosen.storage_capacity_gib:,} GiB\n{first:.3g} s, then {chosen.epoch_seconds[-1]:.3g} s",
        (chosen.storage_capacity_gib, first),
        xytext=(10, 26),
        textcoords="offset points",
        fontsize=9,
        arrowprops={"arrowstyle": "-", "color": _CHOSEN, "linewidth": 0.8},
    )
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.8 * need.compute_seconds)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:,.6g}" if f"{value:.0e}"[0] in "235" else "")
    axes.set_ylabel("Time of an epoch (s)")
    _tidy(axes, "upper right")


def _money(axes: Any, chosen: LustrePlan, sizes: tuple[Forecast, ...]) -> None:
    capacity = [one.storage_capacity_gib for one in sizes]
    if chosen.usd_per_run is not None:
        storage = [_file_system_usd(one) for one in sizes]
        waiting = [_nodes_usd(one) * one.waiting_seconds / one.training_seconds for one in sizes]
        total = [a + b for a, b in zip(storage, waiting, strict=True)]
        axes.plot(capacity, waiting, "-", color=_FIRST, label="GPUs waiting for data", linewidth=1.6)
        axes.plot(capacity, storage, "-", color=_LAST, label="file system", linewidth=1.6)
        axes.plot(capacity, total, "o-", color=_CHOSEN, label="both", markersize=3.5, linewidth=1.6)
        at = total[capacity.index(chosen.storage_capacity_gib)]
        axes.set_ylim(0, max(6 * at, 0.01))
        axes.set_ylabel("Cost of the run beyond compute (USD)")
    else:
        if chosen.usd_per_hour is None:
            axes.text(
                0.5, 0.5, "No price is known for this kind here.", transform=axes.transAxes, ha="center"
            )
            axes.set_yticks([])
            return
        hourly = [one.usd_per_hour or 0 for one in sizes]
        axes.plot(capacity, hourly, "o-", color=_LAST, label="file system", markersize=3.5, linewidth=1.6)
        at = chosen.usd_per_hour
        axes.set_ylim(0)
        axes.set_ylabel("Price of the file system (USD an hour)")
    axes.plot(chosen.storage_capacity_gib, at, "D", color=_CHOSEN, markersize=8, zorder=5)
    axes.annotate(
        f"${at:,.2f}", (chosen.storage_capacity_gib, at), xytext=(0, 12), textcoords="offset points",
        ha="center", fontsize=9,
    )  # fmt: skip
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    _tidy(axes, "upper right" if chosen.usd_per_run is not None else "upper left")


def _file_system_usd(one: Forecast) -> float:
    return (one.usd_per_hour or 0) * (one.create_seconds + one.load_seconds + one.training_seconds) / 3600


def _nodes_usd(one: Forecast) -> float:
    return (one.usd_per_run or 0) - _file_system_usd(one)


def _tidy(axes: Any, where: str) -> None:
    axes.legend(loc=where, frameon=False, fontsize=9)
    axes.grid(color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
