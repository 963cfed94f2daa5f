"""The instance table: complete, dated, and in step with botocore and the SDK."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from botocore.session import Session

import airflow_smd
from airflow_smd.domain.instances import find, instances

TABLES = Path(airflow_smd.__file__).parent / "domain" / "tables"


def test_every_training_type_that_botocore_knows_is_in_the_table():
    """A type that AWS adds later makes this fail and names it."""
    enum = Session().get_service_model("sagemaker").shape_for("TrainingInstanceType").enum

    assert sorted(set(enum) - set(instances())) == []


@pytest.mark.skipif(find_spec("sagemaker") is None, reason="the sagemaker SDK is not installed")
def test_gpu_counts_agree_with_the_sdk():
    sdk = Path(find_spec("sagemaker").submodule_search_locations[0], "core", "image_uri_config")
    facts = json.loads((sdk / "instance_gpu_info.json").read_text())["us-west-2"]

    differing = {
        name: (fact["Count"], found.gpus)
        for name, fact in facts.items()
        if (found := find(name)) and found.gpus != fact["Count"]
    }

    assert differing == {}


def test_every_row_says_where_it_comes_from_and_when():
    assert all(row.source and len(row.date) == len("2026-11-30") for row in instances().values())


@pytest.mark.parametrize(
    ("name", "processes", "efa", "rdma", "nvme"),
    [
        pytest.param("ml.p3.16xlarge", 8, False, False, False, id="V100 without EFA"),
        pytest.param("ml.p3dn.24xlarge", 8, True, False, True, id="EFA without RDMA"),
        pytest.param("ml.p4d.24xlarge", 8, True, True, True, id="A100"),
        pytest.param("ml.p5.48xlarge", 8, True, True, True, id="H100"),
        pytest.param("ml.p5.4xlarge", 1, True, False, True, id="one H100"),
        pytest.param("ml.g6e.12xlarge", 4, True, False, True, id="four L40S"),
        pytest.param("ml.trn1.2xlarge", 2, False, False, True, id="two Neuron cores"),
        pytest.param("ml.trn2.48xlarge", 64, True, True, True, id="64 Neuron cores"),
        pytest.param("ml.c5.18xlarge", 1, False, False, False, id="CPU"),
    ],
)
def test_facts_of_a_type(name, processes, efa, rdma, nvme):
    row = find(name)

    assert (row.processes, row.efa, row.rdma, row.nvme) == (processes, efa, rdma, nvme)


def test_an_unknown_type_is_none_and_not_an_error():
    assert find("ml.p9.96xlarge") is None


@pytest.mark.parametrize(
    "table", ["instance_support", "frameworks", "parameters", "arguments", "debugger_rules", "instances"]
)
def test_every_row_of_every_table_has_its_source_and_date(table):
    rows = json.loads((TABLES / f"{table}.json").read_text())

    assert [row for row in rows if not row.get("source") or len(row.get("date", "")) != 10] == []


def test_every_supported_type_is_an_instance_that_we_know():
    rows = json.loads((TABLES / "instance_support.json").read_text())

    assert [row["type"] for row in rows if find(row["type"]) is None] == []
