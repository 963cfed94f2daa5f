"""/opt/ml of one host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_smd.sandbox.jobs.layout import Layout, training_resources, uses_channel, write_processing
from airflow_smd.sandbox.jobs.machines import Machine, processing_machines, training_machines

GROUPS = {
    "InstanceGroups": [
        {"InstanceGroupName": "head", "InstanceType": "ml.m5.large", "InstanceCount": 1},
        {"InstanceGroupName": "gpus", "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
    ]
}


def test_hosts_are_numbered_through_their_groups() -> None:
    found = training_machines(GROUPS)

    assert [(machine.name, machine.group, machine.gpus) for machine in found] == [
        ("algo-1", "head", 0),
        ("algo-2", "gpus", 8),
        ("algo-3", "gpus", 8),
    ]


def test_preferred_processing_type_is_taken() -> None:
    cluster = {
        "InstancePreferences": [{"InstanceType": "ml.m5.large", "InstanceCount": 2}],
        "VolumeSizeInGB": 1,
    }

    assert [machine.instance_type for machine in processing_machines(cluster)] == ["ml.m5.large"] * 2


def test_type_that_the_table_lacks_has_no_gpus() -> None:
    assert Machine(name="algo-1", number=0, group="g", instance_type="ml.new.huge").gpus == 0


def test_resource_configuration_lists_hosts_sorted_by_name() -> None:
    """SageMaker sorts as text: algo-10 before algo-2."""
    machines = training_machines({"InstanceType": "ml.m5.large", "InstanceCount": 11})

    found = training_resources(machines[0], machines)

    assert found["hosts"][:3] == ["algo-1", "algo-10", "algo-11"]
    assert found["current_host"] == "algo-1"


def test_each_group_is_told_with_its_hosts() -> None:
    machines = training_machines(GROUPS)

    found = training_resources(machines[1], machines)

    assert found["current_group_name"] == "gpus"
    assert [(group["instance_group_name"], group["hosts"]) for group in found["instance_groups"]] == [
        ("head", ["algo-1"]),
        ("gpus", ["algo-2", "algo-3"]),
    ]


@pytest.mark.parametrize(
    ("names", "used"),
    [
        pytest.param(None, True, id="a channel for all"),
        pytest.param(["g"], True, id="a channel for its group"),
        pytest.param(["other"], False, id="a channel for others"),
    ],
)
def test_channel_may_be_for_some_groups(names: list[str] | None, used: bool) -> None:
    machine = Machine(name="algo-1", number=0, group="g", instance_type="ml.m5.large")

    assert uses_channel({"DataSource": {"S3DataSource": {"InstanceGroupNames": names}}}, machine) is used


def test_paths_of_the_container_have_a_real_place(tmp_path: Path) -> None:
    layout = Layout(tmp_path)

    assert layout.real("/opt/ml/model/a") == tmp_path / "ml" / "model" / "a"
    assert layout.real("/data/in") == tmp_path / "elsewhere" / "data" / "in"
    assert layout.bind("/opt/ml/checkpoints") == []
    assert [bind.target for bind in layout.bind("/data/in")] == ["/data/in"]
    assert layout.rewritten("--in=/opt/ml/x /opt/mlx") == f"--in={tmp_path}/ml/x /opt/mlx"


def test_processing_host_finds_its_job(tmp_path: Path) -> None:
    machines = processing_machines({"InstanceType": "ml.m5.large", "InstanceCount": 2})

    write_processing(Layout(tmp_path), {"ProcessingJobName": "a"}, machines[1], machines)

    config = tmp_path / "ml" / "config"
    assert json.loads((config / "processingjobconfig.json").read_text()) == {"ProcessingJobName": "a"}
    resources = json.loads((config / "resourceconfig.json").read_text())
    assert (resources["current_host"], resources["hosts"]) == ("algo-2", ["algo-1", "algo-2"])
