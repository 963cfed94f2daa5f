"""Batch and learning rate: the paper's rule, its warm-up, and what changes with the number of processes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_smd.domain.scaling import Hold, RateRule, Scaling
from airflow_smd.errors import InvalidInput, Severity

PAPER = Scaling(
    reference_rate=0.1,
    reference_batch=256,
    batch_per_gpu=32,
    world_size=256,
    samples=1_281_167,
    epochs=90,
    decay_epochs=(30, 60, 80),
)
"""Goyal et al.: ResNet-50 on 256 GPUs."""


def test_the_papers_own_numbers():
    assert PAPER.global_batch == 8192
    assert PAPER.peak_rate == pytest.approx(3.2)
    assert PAPER.steps_per_epoch == 157


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [
        pytest.param(0, 0.1, id="begins at the reference rate"),
        pytest.param(2.5, 0.1 + 3.1 / 2, id="half way up after half of the warm-up"),
        pytest.param(5, 3.2, id="full rate after five epochs"),
        pytest.param(29.9, 3.2, id="stays"),
        pytest.param(30, 0.32, id="falls to a tenth"),
        pytest.param(60, 0.032, id="falls again"),
        pytest.param(80, 0.0032, id="and again"),
    ],
)
def test_the_papers_schedule(epoch, rate):
    schedule = PAPER.schedule()

    assert schedule.rate_at(math.ceil(epoch * PAPER.steps_per_epoch)) == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize(
    ("rule", "peak"),
    [
        pytest.param(RateRule.LINEAR, 3.2, id="linear"),
        pytest.param(RateRule.SQUARE_ROOT, 0.1 * math.sqrt(32), id="square root"),
        pytest.param(RateRule.CONSTANT, 0.1, id="constant"),
    ],
)
def test_each_rule_scales_in_its_own_way(rule, peak):
    fields = {name: getattr(PAPER, name) for name in ("reference_rate", "reference_batch", "batch_per_gpu")}

    assert Scaling(**fields, world_size=256, samples=10**6, epochs=1, rule=rule).peak_rate == pytest.approx(
        peak
    )


def test_a_fallback_to_half_of_the_gpus_halves_batch_and_rate():
    smaller = PAPER.on(128)

    assert (smaller.global_batch, smaller.batch_per_gpu) == (4096, 32)
    assert smaller.peak_rate == pytest.approx(1.6)
    assert smaller.steps_per_epoch == 313


def test_holding_the_global_batch_keeps_the_rate_and_changes_the_share():
    held = Scaling(
        reference_rate=0.1,
        reference_batch=256,
        batch_per_gpu=16,
        world_size=16,
        samples=10_000,
        epochs=3,
        hold=Hold.GLOBAL_BATCH,
    )

    assert (held.on(8).batch_per_gpu, held.on(8).peak_rate) == (32, held.peak_rate)


def test_a_global_batch_that_cannot_be_shared_is_refused_with_a_way_out():
    held = Scaling(
        reference_rate=0.1,
        reference_batch=256,
        batch_per_gpu=16,
        world_size=16,
        samples=10_000,
        epochs=3,
        hold=Hold.GLOBAL_BATCH,
    )

    with pytest.raises(InvalidInput, match="batch-per-gpu"):
        held.on(12)


def test_hyperparameters_carry_the_names_that_the_user_chose():
    names = {"peak_rate": "lr", "warmup_steps": "warmup-steps", "global_batch": "batch_size"}

    found = PAPER.hyperparameters(names)

    assert found == {"lr": pytest.approx(3.2), "warmup-steps": 785, "batch_size": 8192}


def test_a_misspelt_quantity_is_refused_with_a_suggestion():
    with pytest.raises(InvalidInput, match="Did you mean peak_rate"):
        PAPER.hyperparameters({"peek_rate": "lr"})


def test_no_warmup_where_the_batch_does_not_grow():
    alone = PAPER.on(8)

    assert alone.schedule().warmup_steps == 0
    assert alone.schedule().rate_at(0) == pytest.approx(0.1)


def test_impossible_numbers_are_refused_all_at_once():
    with pytest.raises(InvalidInput) as refused:
        Scaling(
            reference_rate=0, reference_batch=0, batch_per_gpu=0, world_size=0, samples=0, epochs=math.nan
        )

    assert {problem.field for problem in refused.value.problems} == {
        "reference_rate",
        "reference_batch",
        "batch_per_gpu",
        "world_size",
        "samples",
        "epochs",
    }


def test_a_batch_beyond_the_paper_is_a_warning():
    rules = {problem.rule: problem.severity for problem in PAPER.on(512).advice(hosts=64)}

    assert rules == {"batch-beyond-paper": Severity.WARNING}


def test_one_host_gets_the_pages_advice():
    assert [problem.rule for problem in PAPER.on(8).advice(hosts=1)] == ["single-host"]


def test_the_preview_shows_warmup_peak_and_falls():
    lines = PAPER.schedule().preview(rows=10).splitlines()

    assert lines[0].split() == ["step", "epoch", "rate"]
    assert any(line.split()[:3] == ["785", "5.00", "3.2"] for line in lines)
    assert "█" in lines[1]


@given(
    world=st.integers(1, 4096),
    batch=st.integers(1, 512),
    samples=st.integers(1, 10**7),
    epochs=st.floats(0.01, 100),
)
def test_a_rate_never_leaves_the_way_from_reference_to_peak(world, batch, samples, epochs):
    scaling = Scaling(
        reference_rate=0.1,
        reference_batch=256,
        batch_per_gpu=batch,
        world_size=world,
        samples=samples,
        epochs=epochs,
    )
    schedule = scaling.schedule()
    low, high = sorted((scaling.reference_rate, scaling.peak_rate))

    assert all(low - 1e-12 <= point.rate <= high + 1e-12 for point in schedule.points(20))
    assert 0 <= schedule.warmup_steps <= schedule.total_steps
