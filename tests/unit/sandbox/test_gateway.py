"""The gateway before an AWS that is a function of the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client

from airflow_smd.sandbox.calls import CallRecord
from airflow_smd.sandbox.control_api import PREFIX, ControlApi
from airflow_smd.sandbox.faults import parse_fault
from airflow_smd.sandbox.gateway import Gateway
from airflow_smd.sandbox.runtime import Environ, Runtime, Settings

SIGNED = "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/{}/aws4_request, Signature=0"


class Aws:
    """Answers every call alike and remembers what arrived."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.bodies: list[bytes] = []
        self.failure = failure

    def __call__(self, environ: Environ, start_response: Any) -> list[bytes]:
        self.bodies.append(environ["wsgi.input"].read())
        if self.failure:
            raise self.failure
        start_response("200 OK", [("Content-Type", "application/x-amz-json-1.1"), ("x-of", "aws")])
        return [b"{}"]


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(settings=Settings(home=tmp_path), endpoint_url="http://127.0.0.1:1")


@pytest.fixture
def record() -> CallRecord:
    return CallRecord()


def send(gateway: Gateway, operation: str, service: str = "sagemaker", **request: Any) -> Any:
    headers = {"X-Amz-Target": f"Service.{operation}", "Authorization": SIGNED.format(service)}
    return Client(gateway).post("/", data=json.dumps(request), headers=headers, base_url="http://127.0.0.1")


def test_call_reaches_aws_as_it_was_sent(runtime: Runtime, record: CallRecord) -> None:
    aws = Aws()

    answer = send(Gateway(runtime, record, aws), "ListTrainingJobs", MaxResults=5)

    assert (answer.status_code, answer.headers["x-of"], answer.get_json(force=True)) == (200, "aws", {})
    assert aws.bodies == [b'{"MaxResults": 5}']


def test_invalid_call_does_not_reach_aws(runtime: Runtime, record: CallRecord) -> None:
    aws = Aws()

    answer = send(Gateway(runtime, record, aws), "ListTrainingJobs", MaxResults=5000)

    assert answer.get_json(force=True)["__type"] == "ValidationException"
    assert answer.status_code == 400
    assert aws.bodies == []


def test_value_of_another_type_is_a_serialization_error(runtime: Runtime, record: CallRecord) -> None:
    answer = send(Gateway(runtime, record, Aws()), "ListTrainingJobs", MaxResults="5")

    assert answer.get_json(force=True)["__type"] == "SerializationException"


@pytest.mark.parametrize(
    ("failure", "code", "status"),
    [
        pytest.param(NotImplementedError(), "NotImplemented", 501, id="moto lacks the call"),
        pytest.param(ValueError("odd"), "InternalFailure", 500, id="moto breaks"),
    ],
)
def test_failure_behind_is_answered_in_the_format_of_the_service(
    runtime: Runtime, record: CallRecord, failure: Exception, code: str, status: int
) -> None:
    answer = send(Gateway(runtime, record, Aws(failure)), "ListTrainingJobs")

    assert (answer.get_json(force=True)["__type"], answer.status_code) == (code, status)
    assert record.listed()[0]["status"] == status


@pytest.mark.parametrize(
    ("when", "calls"), [pytest.param("before", 0, id="before"), pytest.param("after", 1, id="after")]
)
def test_dropped_connection_has_an_effect_or_none(
    runtime: Runtime, record: CallRecord, when: str, calls: int
) -> None:
    aws = Aws()
    runtime.faults.add(parse_fault({"kind": "drop", "when": when}))

    with pytest.raises(ConnectionAbortedError):
        send(Gateway(runtime, record, aws), "ListTrainingJobs")

    assert len(aws.bodies) == calls
    assert record.listed()[0]["status"] is None


@pytest.mark.parametrize(
    ("operation", "changes"),
    [
        pytest.param("ListTrainingJobs", False, id="a look changes nothing"),
        pytest.param("StopEverything", True, id="anything else does"),
    ],
)
def test_calls_that_change_something_are_counted(
    runtime: Runtime, record: CallRecord, operation: str, changes: bool
) -> None:
    send(Gateway(runtime, record, Aws()), operation, service="emr")

    assert (runtime.gate.changes > 0) is changes


def test_slow_call_ends_early_when_the_sandbox_goes_down(runtime: Runtime, record: CallRecord) -> None:
    runtime.faults.add(parse_fault({"kind": "slow", "seconds": 3600}))
    runtime.stopping.set()

    assert send(Gateway(runtime, record, Aws()), "ListTrainingJobs").status_code == 200


def test_path_of_a_service_of_our_own_is_not_aws(runtime: Runtime, record: CallRecord) -> None:
    aws = Aws()
    runtime.routes["/v2/"] = Aws()
    gateway = Gateway(runtime, record, aws)

    for path in ("/v2/", "/v2", "/v2/image/manifests/latest"):
        Client(gateway).get(path, base_url="http://127.0.0.1")

    assert aws.bodies == []
    assert record.listed() == []


def test_unknown_control_is_answered_with_those_that_exist(runtime: Runtime, record: CallRecord) -> None:
    api = ControlApi(runtime, record, {"status": "ok"})

    answer = Client(api).get(PREFIX + "fault")

    assert answer.status_code == 404
    assert "health, faults and calls" in answer.get_json()["error"]


def test_control_that_is_not_json_is_refused(runtime: Runtime, record: CallRecord) -> None:
    answer = Client(ControlApi(runtime, record, {})).post(PREFIX + "faults", data="throttle")

    assert answer.status_code == 400
    assert "cannot be read" in answer.get_json()["error"]


def test_fault_that_struck_already_cannot_be_deleted(runtime: Runtime, record: CallRecord) -> None:
    client = Client(ControlApi(runtime, record, {}))
    fault_id = client.post(PREFIX + "faults", json={"kind": "capacity"}).get_json()["id"]
    runtime.faults.take("capacity")

    answer = client.delete(f"{PREFIX}faults/{fault_id}")

    assert answer.status_code == 404
    assert fault_id in answer.get_json()["error"]


def test_calls_are_listed_of_one_service_and_after_a_number(runtime: Runtime, record: CallRecord) -> None:
    gateway = Gateway(runtime, record, Aws())
    for service in ("sagemaker", "logs", "sagemaker"):
        send(gateway, "ListTags", service=service)
    client = Client(ControlApi(runtime, record, {}))

    listed = client.get(f"{PREFIX}calls?service=sagemaker&since=1").get_json()["calls"]

    assert [call["number"] for call in listed] == [3]
    assert client.get(f"{PREFIX}calls?since=soon").status_code == 400
