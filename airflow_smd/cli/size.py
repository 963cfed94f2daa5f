"""airflow-smd size: the file system that costs a training run least, and why."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_smd.domain.cost import load_prices
from airflow_smd.domain.lustre import (
    Access,
    Facts,
    Forecast,
    LustrePlan,
    Need,
    OtherInput,
    load,
    need_problems,
    plan,
)
from airflow_smd.domain.units import GIB, format_bytes, parse_bytes
from airflow_smd.errors import InvalidInput, Problem, refuse

_SIZE = "a size, as in 100GB"
_NUMBER = "a number"
_WHOLE = "a whole number"
OPTIONS: dict[str, tuple[str, Callable[[str], Any] | None, str, str]] = {
    "dataset": ("dataset_bytes", parse_bytes, _SIZE, "size of the data set"),
    "epoch-seconds": ("epoch_seconds", float, _NUMBER, "time of an epoch if data never made a GPU wait"),
    "samples-per-second": ("samples_per_second", float, _NUMBER, "instead: samples of all nodes together"),
    "bytes-per-sample": ("bytes_per_sample", float, _NUMBER, "with it: mean stored size of a sample"),
    "mbps-per-gpu": ("mbps_per_gpu", float, _NUMBER, "instead: MB/s that one GPU consumes"),
    "gpus-per-node": ("gpus_per_node", int, _WHOLE, "default: those of the instance type"),
    "nodes": ("nodes", int, _WHOLE, "training instances"),
    "epochs": ("epochs", int, _WHOLE, "epochs of the run (default 10)"),
    "instance-type": ("instance_type", None, "", "as in ml.p4d.24xlarge; brings its price and memory"),
    "node-usd-per-hour": ("node_usd_per_hour", float, _NUMBER, "your price of a node"),
    "memory-per-node": (
        "memory_per_node_gib",
        lambda text: parse_bytes(text) / GIB,
        _SIZE,
        "memory of a node",
    ),
    "files": ("file_count", int, _WHOLE, "files of the data set"),
    "checkpoint": ("checkpoint_bytes", parse_bytes, _SIZE, "size of a checkpoint, written once an epoch"),
    "region": ("region", None, "", "AWS Region (default us-east-1)"),
    "deployment-type": ("deployment_type", None, "", "only this one, as in SCRATCH_2"),
    "per-unit-storage-throughput": (
        "per_unit_storage_throughput",
        int,
        _WHOLE,
        "only this tier, MB/s per TiB",
    ),
    "access": ("access", None, "", f"how nodes read: {', '.join(Access)} (default reshuffled)"),
}
"""Option -> field of Need, how it is read, what is allowed, help."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options; all are read in `run`, so that every problem is told at once."""
    for option, (_, _, _, text) in OPTIONS.items():
        parser.add_argument(f"--{option}", help=text, required=option in ("dataset", "nodes"))
    parser.add_argument("--efa", action="store_true", help="a file system whose servers speak EFA")
    parser.add_argument(
        "--lazy", action="store_true", help="no preloading job: the first epoch loads from S3"
    )
    parser.add_argument("--no-vpc", action="store_true", help="the run may not use a VPC")
    parser.add_argument("--insist", action="store_true", help="a file system, also where S3 alone would do")
    parser.add_argument("--facts", metavar="FILE", help='JSON over our tables: {"lustre": {}, "regions": {}}')
    parser.add_argument(
        "--prices", metavar="FILE", help="JSON over our prices, shaped like tables/prices.json"
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="write epoch time and cost against capacity, as in size.png"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, and draw it where asked to."""
    found: list[Problem] = []
    facts = load(_read_json(arguments.facts, "--facts", found))
    prices = load_prices(_read_json(arguments.prices, "--prices", found))
    need, assumed = _need(arguments, facts, found)
    refuse(_as_options([*found, *(need_problems(need, facts))]))
    try:
        answer = plan(need, facts=facts, prices=prices)
    except InvalidInput as error:
        raise InvalidInput(_as_options(error.problems)) from error
    chosen = answer.file_system if isinstance(answer, OtherInput) else answer
    if arguments.plot and chosen:
        from airflow_smd.cli.size_plot import draw

        draw(Path(arguments.plot), need, chosen, facts=facts, prices=prices)
    if arguments.json:
        print(json.dumps(as_json(answer, assumed), indent=2))
    else:
        print(as_text(answer, assumed))
    return 0


def _need(arguments: argparse.Namespace, facts: Facts, found: list[Problem]) -> tuple[Need, tuple[str, ...]]:
    values: dict[str, Any] = {}
    for option, (field, convert, allowed, text) in OPTIONS.items():
        raw = getattr(arguments, option.replace("-", "_"))
        if raw is None:
            continue
        try:
            values[field] = convert(raw) if convert else raw
        except ValueError:
            found.append(
                Problem(
                    rule=f"{option}-unreadable",
                    field=f"--{option}",
                    value=raw,
                    message=f"is not {allowed}.",
                    remedy=f"Give the {text}.",
                )
            )
            # A stand-in that no rule complains about, so that the other options are judged too.
            values[field] = 10**12 if field == "dataset_bytes" else 1
    need = Need(
        **values,
        efa=arguments.efa,
        preload=not arguments.lazy,
        vpc=not arguments.no_vpc,
        insist=arguments.insist,
    )
    if need.nodes > 1 and not (need.instance_type or need.memory_per_node_gib):
        memory = facts.rest["rules"]["unknown_node_memory_gib"]
        sentence = (
            f"No instance type is given: nodes are taken to have {memory} GiB of memory, as the smallest "
            "that the SageMaker data-parallel library runs on have."
        )
        return replace(need, memory_per_node_gib=memory), (sentence,)
    return need, ()


def _read_json(path: str | None, option: str, found: list[Problem]) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        tables: dict[str, Any] = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        found.append(
            Problem(
                rule="tables-unreadable",
                field=option,
                value=path,
                message=f"cannot be read: {error}.",
                remedy="Give a JSON file shaped like our tables.",
            )
        )
        return None
    return tables


def _as_options(problems: list[Problem] | tuple[Problem, ...]) -> list[Problem]:
    spelled = {field: f"--{option}" for option, (field, *_) in OPTIONS.items()}
    return [replace(problem, field=spelled.get(problem.field, problem.field)) for problem in problems]


def as_json(answer: LustrePlan | OtherInput, assumed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the answer for a program; `plan` is null where no file system is worth it."""
    chosen = answer if isinstance(answer, LustrePlan) else None
    losers: tuple[Forecast, ...] = answer.alternatives if isinstance(answer, LustrePlan) else ()
    if isinstance(answer, OtherInput) and answer.file_system:
        losers = (answer.file_system, *answer.file_system.alternatives)
    return {
        "input_mode": str(answer.input_mode),
        "required_mbps": answer.required_mbps,
        "plan": _plan_json(chosen) if chosen else None,
        "epoch_seconds": list(chosen.epoch_seconds) if chosen else [],
        "usd_per_hour": chosen.usd_per_hour if chosen else None,
        "usd_per_run": chosen.usd_per_run if chosen else None,
        "limited_by": str(chosen.limited_by) if chosen else None,
        "why": [*answer.why, *assumed],
        "alternatives": [
            {
                **_plan_json(loser),
                "epoch_seconds": list(loser.epoch_seconds),
                "usd_per_hour": loser.usd_per_hour,
                "usd_per_run": loser.usd_per_run,
                "limited_by": str(loser.limited_by),
                "lost_because": getattr(loser, "lost_because", answer.why[0]),
            }
            for loser in losers
        ],
    }


def _plan_json(one: Forecast) -> dict[str, Any]:
    return {
        "deployment_type": str(one.deployment_type),
        "storage_capacity_gib": one.storage_capacity_gib,
        "per_unit_storage_throughput": one.per_unit_storage_throughput,
        "read_mbps": one.read_mbps,
        "ram_cache_gib": one.ram_cache_gib,
        "efa": one.efa,
        "metadata_iops": one.metadata_iops,
    }


def as_text(answer: LustrePlan | OtherInput, assumed: tuple[str, ...] = ()) -> str:
    """Return the answer for a person."""
    chosen = answer if isinstance(answer, LustrePlan) else answer.file_system
    lines = [_headline(answer), ""]
    if isinstance(answer, OtherInput):
        lines += [*(f"  {sentence}" for sentence in answer.why), "", "With a file system it would be:", ""]
    if chosen:
        rows: list[tuple[Forecast, str]] = [(chosen, "chosen" if chosen is answer else "the best of them")]
        rows += [(loser, loser.lost_because) for loser in chosen.alternatives]
        lines += _table(rows)
        lines += ["", "Why:", *(f"  - {sentence}" for sentence in (*chosen.why, *assumed))]
    return "\n".join(lines)


def _headline(answer: LustrePlan | OtherInput) -> str:
    if isinstance(answer, OtherInput):
        return f"Input mode {answer.input_mode}: no file system is worth it."
    hour = "price unknown" if answer.usd_per_hour is None else f"${answer.usd_per_hour:,.2f} an hour"
    return f"{answer.name}: reads {format_bytes(answer.read_mbps * 1e6)}/s, {hour}"


def _table(rows: list[tuple[Forecast, str]]) -> list[str]:
    head = ("FILE SYSTEM", "READS", "RAM", "EPOCHS 1, 2, 3 ... LAST (s)", "LIMITED BY", "$/HOUR", "$/RUN", "")
    cells = [head, *(_cells(one, note) for one, note in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head) - 1)]
    return [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]]
        ).rstrip()
        for row in cells
    ]


def _cells(one: Forecast, note: str) -> tuple[str, ...]:
    first = ", ".join(f"{value:.4g}" for value in one.epoch_seconds[:3])
    more = f" ... {one.epoch_seconds[-1]:.4g}" if len(one.epoch_seconds) > 3 else ""
    return (
        one.name,
        f"{format_bytes(one.read_mbps * 1e6)}/s",
        f"{one.ram_cache_gib:.1f} GiB",
        first + more,
        str(one.limited_by),
        _usd(one.usd_per_hour),
        _usd(one.usd_per_run),
        note,
    )


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f}"
