"""Prices with their source, an estimate, a bill and a budget."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from airflow_smd.domain.cost import (
    Cost,
    CostLine,
    budget_problems,
    file_system_line,
    instances_line,
    load_prices,
    run_cost,
)
from airflow_smd.domain.instances import find
from airflow_smd.domain.lustre import LustreConfig
from airflow_smd.errors import Severity

SCRATCH_2 = LustreConfig(deployment_type="SCRATCH_2", storage_capacity_gib=12000)


def training(**change) -> CostLine:
    wanted = {"instance_type": "ml.p4d.24xlarge", "count": 4, "seconds": 360.0, "region": "us-east-1"}
    return instances_line("training", **{**wanted, **change})


def test_every_price_says_where_and_when_it_was_read():
    tables = json.loads((files("airflow_smd.domain") / "tables" / "prices.json").read_text("utf-8"))

    assert all(row["source"] and row["date"] for row in [*tables["instances"], *tables["lustre"]])


def test_every_priced_instance_is_one_that_trains():
    priced = {instance_type for instance_type, _ in load_prices().instances}

    assert {name for name in priced if find(name) is None and not name.startswith("ml.t3.")} == set()


@pytest.mark.parametrize(
    ("config", "usd"),
    [
        pytest.param(SCRATCH_2, 2.30, id="12000 GiB of scratch"),
        pytest.param(
            LustreConfig(
                deployment_type="PERSISTENT_2", per_unit_storage_throughput=125, storage_capacity_gib=19200
            ),
            3.81,
            id="19200 GiB at 125",
        ),
    ],
)
def test_an_hour_of_a_file_system_costs_what_the_facts_say(config, usd):
    assert load_prices().file_system_usd_per_hour(config, "us-east-1") == pytest.approx(usd, abs=0.005)


@pytest.mark.parametrize(
    ("config", "region"),
    [
        pytest.param(SCRATCH_2, "eu-west-1", id="a Region without a price"),
        pytest.param(
            LustreConfig(
                deployment_type="PERSISTENT_2", per_unit_storage_throughput=1000, storage_capacity_gib=2400
            ),
            "us-east-1",
            id="a tier without a price",
        ),
        pytest.param(
            LustreConfig(
                deployment_type="PERSISTENT_2",
                per_unit_storage_throughput=125,
                storage_capacity_gib=2400,
                metadata_mode="USER_PROVISIONED",
                metadata_iops=12000,
            ),
            "us-east-1",
            id="metadata IOPS on top",
        ),
        pytest.param(
            LustreConfig(
                deployment_type="PERSISTENT_2",
                storage_type="INTELLIGENT_TIERING",
                throughput_capacity_mbps=4000,
            ),
            "us-east-1",
            id="elastic storage",
        ),
    ],
)
def test_a_price_that_no_table_has_is_none(config, region):
    assert load_prices().file_system_usd_per_hour(config, region) is None


def test_nodes_cost_their_number_times_their_seconds():
    assert training().usd == pytest.approx(4 * 0.1 * 25.251286)


def test_the_basis_of_a_line_names_figures_source_and_date():
    assert training().basis.startswith("4 x ml.p4d.24xlarge x 360 s at $25.25 (")
    assert "2026-09-01" in training().basis


def test_your_own_price_goes_before_the_table():
    prices = load_prices({"instances": [{"type": "ml.new", "region": "mars-1", "usd_per_hour": 10}]})

    assert training(usd_per_hour=10).usd == pytest.approx(4.0)
    assert training(instance_type="ml.new", region="mars-1", prices=prices).usd == pytest.approx(4.0)


def test_a_run_costs_the_sum_of_its_lines():
    storage = file_system_line("file system", SCRATCH_2, seconds=1800, region="us-east-1")
    preparation = instances_line(
        "preprocessing", instance_type="ml.m5.xlarge", count=2, seconds=900, region="us-east-1"
    )
    cost = run_cost([training(), storage, preparation])

    assert cost.total_usd == pytest.approx(10.1005 + 1.1507 + 0.115, abs=0.001)
    assert str(cost) == "$11.37"


def test_a_line_without_a_price_makes_the_sum_unknown_and_the_rest_a_lower_bound():
    cost = run_cost([training(), training(region="eu-north-1")])

    assert cost.total_usd is None
    assert cost.unknown == ("training",)
    assert str(cost) == "at least $10.10 (no price for training)"


COST = Cost(
    lines=(CostLine(what="training", usd=90.0, basis="b"), CostLine(what="storage", usd=20.0, basis="b"))
)
PART = Cost(lines=(*COST.lines, CostLine(what="build", usd=None, basis="b")))


@pytest.mark.parametrize(
    ("cost", "budget", "found"),
    [
        pytest.param(COST, None, [], id="no budget"),
        pytest.param(COST, 110, [], id="just enough"),
        pytest.param(COST, 109.99, [("budget-exceeded", Severity.ERROR)], id="a cent short"),
        pytest.param(PART, 200, [("budget-unknown", Severity.WARNING)], id="enough for what is known"),
        pytest.param(PART, 100, [("budget-exceeded", Severity.ERROR)], id="too little even for that"),
        pytest.param(COST, 0, [("budget-range", Severity.ERROR)], id="nothing"),
        pytest.param(COST, -1, [("budget-range", Severity.ERROR)], id="less than nothing"),
    ],
)
def test_a_budget_is_held_against_the_cost(cost, budget, found):
    problems = budget_problems(cost, budget)

    assert [(problem.rule, problem.severity) for problem in problems] == found


def test_a_budget_that_is_exceeded_names_the_largest_line():
    (problem,) = budget_problems(COST, 50)

    assert "$110.00, most of it training" in problem.message
