"""Batch size and learning rate for any number of processes.

Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", sections 2 and 3: when the
minibatch is multiplied by k, multiply the learning rate by k, and reach it gradually over the first epochs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import assert_never

from airflow_smd.errors import Problem, Severity, refuse

LARGEST_KNOWN_BATCH = 8192
"""Up to here the paper found no loss of accuracy (figure 1)."""
WARMUP_EPOCHS = 5.0
"""The paper's gradual warm-up (section 2.2)."""


class RateRule(StrEnum):
    """How the learning rate follows the batch."""

    LINEAR = "linear"
    """Multiply it by k: section 2.1, for SGD."""
    SQUARE_ROOT = "square-root"
    """Multiply it by the root of k: keeps the gradient's variance, often used with Adam."""
    CONSTANT = "constant"

    def factor(self, k: float) -> float:
        """Return what the rate is multiplied by when the batch is multiplied by `k`."""
        match self:
            case RateRule.LINEAR:
                return k
            case RateRule.SQUARE_ROOT:
                return math.sqrt(k)
            case RateRule.CONSTANT:
                return 1.0
        assert_never(self)


class Hold(StrEnum):
    """What stays the same when the number of processes changes."""

    BATCH_PER_GPU = "batch-per-gpu"
    """The global batch grows with the processes, and the rate with it."""
    GLOBAL_BATCH = "global-batch"
    """Each process takes a smaller part, and the rate stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One step of a schedule."""

    step: int
    epoch: float
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A learning rate for every step: a gradual warm-up, then the peak, then falls at given epochs."""

    start_rate: float
    peak_rate: float
    warmup_steps: int
    steps_per_epoch: int
    total_steps: int
    decay_epochs: tuple[float, ...] = ()
    decay_factor: float = 0.1

    def rate_at(self, step: int) -> float:
        """Return the rate of the step, counted from 0."""
        if step < self.warmup_steps:
            return self.start_rate + (self.peak_rate - self.start_rate) * step / self.warmup_steps
        epoch = step / self.steps_per_epoch
        return self.peak_rate * self.decay_factor ** sum(epoch >= fall for fall in self.decay_epochs)

    def points(self, rows: int = 12) -> Iterator[Point]:
        """Yield evenly spread steps, the first and the last among them."""
        last = max(self.total_steps - 1, 0)
        steps = {round(last * row / max(rows - 1, 1)) for row in range(max(rows, 1))}
        for step in sorted(steps | {min(self.warmup_steps, last)}):
            yield Point(step=step, epoch=step / self.steps_per_epoch, rate=self.rate_at(step))

    def preview(self, rows: int = 12) -> str:
        """Return the schedule as a table with bars."""
        points = list(self.points(rows))
        top = max(point.rate for point in points) or 1.0
        lines = ["   step   epoch        rate"]
        for point in points:
            bar = "█" * round(30 * point.rate / top)
            lines.append(f"{point.step:>7} {point.epoch:>7.2f} {point.rate:>11.6g}  {bar}".rstrip())
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """A batch and a learning rate that were found on few processes, carried to many."""

    reference_rate: float
    """Learning rate that works at `reference_batch`."""
    reference_batch: int
    """Samples in a step where that rate was found, over all processes."""
    batch_per_gpu: int
    world_size: int
    """Processes that share a step: hosts times processes on each."""
    samples: int
    """Size of the data set."""
    epochs: float
    rule: RateRule = RateRule.LINEAR
    hold: Hold = Hold.BATCH_PER_GPU
    warmup_epochs: float = WARMUP_EPOCHS
    decay_epochs: tuple[float, ...] = ()
    decay_factor: float = 0.1

    def __post_init__(self) -> None:
        refuse(problems(self))

    @property
    def global_batch(self) -> int:
        """Return the samples of one step over all processes."""
        return self.batch_per_gpu * self.world_size

    @property
    def k(self) -> float:
        """Return how many times the reference batch one step has."""
        return self.global_batch / self.reference_batch

    @property
    def peak_rate(self) -> float:
        """Return the rate after the warm-up."""
        return self.reference_rate * self.rule.factor(self.k)

    @property
    def steps_per_epoch(self) -> int:
        """Return the steps of one epoch; the last, smaller one counts."""
        return max(1, math.ceil(self.samples / self.global_batch))

    def schedule(self) -> Schedule:
        """Return the rate of every step.

        The warm-up starts at the reference rate, which is safe at any batch (section 2.2). A rate that is
        not raised needs none.
        """
        total = math.ceil(self.epochs * self.steps_per_epoch)
        warmup = math.ceil(self.warmup_epochs * self.steps_per_epoch) if self.k > 1 else 0
        return Schedule(
            start_rate=self.reference_rate,
            peak_rate=self.peak_rate,
            warmup_steps=min(warmup, total),
            steps_per_epoch=self.steps_per_epoch,
            total_steps=total,
            decay_epochs=self.decay_epochs,
            decay_factor=self.decay_factor,
        )

    def on(self, world_size: int) -> Scaling:
        """Return the same training on another number of processes, as after a fall-back to another type."""
        match self.hold:
            case Hold.BATCH_PER_GPU:
                return replace(self, world_size=world_size)
            case Hold.GLOBAL_BATCH:
                return replace(
                    self, world_size=world_size, batch_per_gpu=_share(self.global_batch, world_size)
                )
        assert_never(self.hold)

    def hyperparameters(self, names: Mapping[str, str]) -> dict[str, float | int]:
        """Return hyperparameters under the user's names.

        Args:
            names: quantity to hyperparameter, as `{"peak_rate": "lr", "warmup_steps": "warmup-steps"}`. The
                quantities are world_size, global_batch, batch_per_gpu, reference_rate, peak_rate,
                warmup_steps, warmup_epochs, steps_per_epoch, total_steps and epochs.
        """
        schedule = self.schedule()
        quantities: dict[str, float | int] = {
            "world_size": self.world_size,
            "global_batch": self.global_batch,
            "batch_per_gpu": self.batch_per_gpu,
            "reference_rate": self.reference_rate,
            "peak_rate": self.peak_rate,
            "warmup_steps": schedule.warmup_steps,
            "warmup_epochs": self.warmup_epochs if schedule.warmup_steps else 0.0,
            "steps_per_epoch": self.steps_per_epoch,
            "total_steps": schedule.total_steps,
            "epochs": self.epochs,
        }
        refuse(_unknown_quantity(name, tuple(quantities)) for name in names if name not in quantities)
        return {spelt: quantities[name] for name, spelt in names.items()}

    def advice(self, hosts: int) -> tuple[Problem, ...]:
        """Return what AWS's page and the paper say about this size; warnings and notes only."""
        found = []
        if self.global_batch > LARGEST_KNOWN_BATCH:
            found.append(
                _problem(
                    "batch-beyond-paper",
                    "batch_per_gpu",
                    self.batch_per_gpu,
                    f"A global batch of {self.global_batch}; the rule holds up to {LARGEST_KNOWN_BATCH}.",
                    "Lower it, warm up longer, or use an optimizer for large batches.",
                    Severity.WARNING,
                )
            )
        if hosts > 1 and self.warmup_epochs <= 0 and self.k > 1:
            found.append(
                _problem(
                    "no-warmup",
                    "warmup_epochs",
                    self.warmup_epochs,
                    f"The rate jumps to {self.rule.factor(self.k):g} times the reference at once.",
                    f"Warm up over {WARMUP_EPOCHS:g} epochs.",
                    Severity.WARNING,
                )
            )
        if hosts == 1 and self.world_size > 1:
            found.append(
                _problem(
                    "single-host",
                    "world_size",
                    self.world_size,
                    "On one host the GPUs exchange gradients over NVLink or PCIe; SMDDP gains between hosts.",
                    "Use torchrun here, or two hosts and more.",
                    Severity.NOTE,
                )
            )
        return tuple(found)


def problems(scaling: Scaling) -> list[Problem]:
    """Return the numbers that no training can have."""
    least: Mapping[str, tuple[float, bool]] = {
        "reference_rate": (0.0, True),
        "reference_batch": (1, False),
        "batch_per_gpu": (1, False),
        "world_size": (1, False),
        "samples": (1, False),
        "epochs": (0.0, True),
        "warmup_epochs": (0.0, False),
        "decay_factor": (0.0, True),
    }
    found = []
    for name, (bound, above) in least.items():
        value = getattr(scaling, name)
        if not math.isfinite(value) or value < bound or (above and value == bound):
            wanted = f"{'above' if above else 'at least'} {bound:g}"
            found.append(
                _problem("scaling-number", name, value, f"It must be {wanted}.", f"Set it {wanted}.")
            )
    return found


def _share(global_batch: int, world_size: int) -> int:
    if world_size < 1 or global_batch % world_size:
        refuse(
            [
                _problem(
                    "batch-split",
                    "world_size",
                    world_size,
                    f"A global batch of {global_batch} does not divide evenly among {world_size} processes.",
                    f"Hold the batch per GPU instead ({Hold.BATCH_PER_GPU}), or choose another type.",
                )
            ]
        )
    return global_batch // world_size


def _unknown_quantity(name: str, known: tuple[str, ...]) -> Problem:
    meant = next(iter(get_close_matches(name, known, n=1)), "")
    return _problem(
        "scaling-quantity",
        name,
        name,
        f"Known are {', '.join(known)}.",
        f"Did you mean {meant}?" if meant else "Use one of them.",
    )


def _problem(
    rule: str, field: str, value: object, message: str, remedy: str, severity: Severity = Severity.ERROR
) -> Problem:
    return Problem(rule=rule, field=field, value=value, message=message, remedy=remedy, severity=severity)
