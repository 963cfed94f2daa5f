from __future__ import annotations

import threading

import pytest

from airflow_smd.errors import InvalidInput
from airflow_smd.sandbox.faults import OPTIONS, FaultKind, Faults, parse_fault, value_at

REQUEST = {
    "TrainingJobName": "mnist-1",
    "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
}


def armed(**fault: object) -> Faults:
    faults = Faults()
    faults.add(parse_fault(fault))
    return faults


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind) for kind in FaultKind])
def test_every_kind_needs_nothing_but_its_name(kind: FaultKind) -> None:
    assert parse_fault({"kind": kind}).options == OPTIONS[kind]


def test_fault_strikes_once_unless_told() -> None:
    faults = armed(kind="capacity")

    assert faults.take("capacity") is not None
    assert faults.take("capacity") is None
    assert faults.armed() == []


def test_fault_strikes_as_often_as_told() -> None:
    faults = armed(kind="capacity", count=3)

    assert [faults.take("capacity") is not None for _ in range(5)] == [True, True, True, False, False]


def test_unlimited_fault_ends_when_it_is_deleted() -> None:
    faults = armed(kind="capacity", count="unlimited")

    assert all(faults.take("capacity") for _ in range(50))
    assert faults.delete() == 1
    assert faults.take("capacity") is None


def test_matching_work_passes_unharmed_first() -> None:
    faults = armed(kind="fail", after=2, parameters={"TrainingJobName": "mnist-*"})

    assert faults.take("fail", TrainingJobName="other") is None
    assert faults.take("fail", **REQUEST) is None
    assert faults.take("fail", **REQUEST) is None
    assert faults.take("fail", **REQUEST) is not None


@pytest.mark.parametrize(
    ("fault", "strikes"),
    [
        pytest.param({"service": "sagemaker"}, True, id="the service"),
        pytest.param({"service": "fsx"}, False, id="another service"),
        pytest.param({"operation": "Create*"}, True, id="a pattern of operations"),
        pytest.param({"operation": "createtrainingjob"}, False, id="an operation in other letters"),
        pytest.param({"parameters": {"ResourceConfig.InstanceType": "ml.p4d*"}}, True, id="a nested value"),
        pytest.param({"parameters": {"ResourceConfig.InstanceCount": 2}}, True, id="a number"),
        pytest.param({"parameters": {"ResourceConfig.InstanceCount": 3}}, False, id="another number"),
        pytest.param({"parameters": {"Missing": "*"}}, True, id="anything, also nothing"),
        pytest.param({"parameters": {"Missing": "?*"}}, False, id="something that is missing"),
    ],
)
def test_fault_strikes_what_it_describes(fault: dict[str, object], strikes: bool) -> None:
    faults = armed(kind="capacity", **fault)

    struck = faults.take("capacity", service="sagemaker", operation="CreateTrainingJob", **REQUEST)

    assert (struck is not None) is strikes


def test_faults_strike_in_the_order_in_which_they_were_armed() -> None:
    faults = armed(kind="fail", message="first")
    faults.add(parse_fault({"kind": "fail", "message": "second"}))

    messages = [fault.options["message"] for _ in range(2) if (fault := faults.take("fail"))]

    assert messages == ["first", "second"]


def test_fault_of_another_kind_is_left_alone() -> None:
    faults = armed(kind="capacity")

    assert faults.take("fail") is None
    assert faults.take("capacity") is not None


def test_one_fault_strikes_one_of_many_threads() -> None:
    faults = armed(kind="capacity", count=5)
    struck: list[object] = []
    threads = [
        threading.Thread(target=lambda: [struck.append(faults.take("capacity")) for _ in range(20)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(fault is not None for fault in struck) == 5


def test_everything_wrong_with_a_fault_is_told_at_once() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_fault({"kind": "slow", "seconds": "soon", "count": 0, "after": -1, "when": "before"})

    assert {problem.field for problem in refused.value.problems} == {"seconds", "count", "after", "when"}


@pytest.mark.parametrize("raw", [pytest.param([], id="a list"), pytest.param("throttle", id="a text")])
def test_fault_must_be_an_object(raw: object) -> None:
    with pytest.raises(InvalidInput, match="JSON object"):
        parse_fault(raw)


def test_value_in_a_list_is_found_by_its_position() -> None:
    assert value_at({"Tags": [{"Key": "team"}]}, "Tags.0.Key") == "team"
    assert value_at({"Tags": []}, "Tags.0.Key") is None
