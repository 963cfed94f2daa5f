"""botocore reads each error as it reads that of AWS."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest
from botocore.parsers import create_parser

from airflow_smd.sandbox.answers import error, throttled
from airflow_smd.sandbox.calls import Call

PROTOCOLS = {"sagemaker": "json", "iam": "query", "ec2": "ec2", "s3": "rest-xml", "lambda": "rest-json"}
SERVICES = [pytest.param(service, protocol, id=protocol) for service, protocol in PROTOCOLS.items()]


def as_read(answer: Any, protocol: str) -> dict[str, Any]:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    response = {"body": answer.get_data(), "headers": headers, "status_code": answer.status_code}
    parsed: dict[str, Any] = create_parser(protocol).parse(response, None)
    return parsed


@pytest.mark.parametrize(("service", "protocol"), SERVICES)
def test_code_and_message_arrive_as_they_are(service: str, protocol: str) -> None:
    call = Call(service=service, operation="Do", protocol=protocol, resource="/a?b&c")

    read = as_read(error(call, "Odd<Code", 'It is 1 < 2 & "3"', 400), protocol)

    assert read["Error"]["Code"] == "Odd<Code"
    assert read["Error"]["Message"] == 'It is 1 < 2 & "3"'
    assert read["ResponseMetadata"]["HTTPStatusCode"] == 400


@pytest.mark.parametrize(("service", "protocol"), SERVICES)
def test_throttling_is_an_error_that_botocore_repeats(service: str, protocol: str) -> None:
    answer = throttled(Call(service=service, operation="Do", protocol=protocol))
    retried = botocore.session.get_session().get_component("data_loader").load_data("_retry")
    policies = retried["definitions"].values()
    codes = {
        policy["applies_when"]["response"].get("service_error_code")
        for policy in policies
        if "response" in policy["applies_when"]
    }

    read = as_read(answer, protocol)

    assert read["Error"]["Code"] in codes or answer.status_code == 503
