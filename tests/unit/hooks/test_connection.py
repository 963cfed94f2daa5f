import json

import pytest

from airflow_smd.hooks.connection import AwsConnection

REGION = {"region_name": "us-east-1"}


@pytest.mark.parametrize(
    ("task", "extra", "seconds"),
    [
        pytest.param(None, {}, 10, id="ours, where nobody says anything"),
        pytest.param(None, {"config_kwargs": {"connect_timeout": 7}}, 7, id="the Airflow connection's"),
        pytest.param({"connect_timeout": 3}, {}, 3, id="the task's"),
        pytest.param({"read_timeout": 3}, {}, 10, id="ours, where the task says something else"),
    ],
)
def test_settings_of_the_task_and_of_the_connection_come_before_ours(monkeypatch, task, extra, seconds):
    connection = {"conn_type": "aws", "login": "key", "password": "secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_MINE", json.dumps(connection))
    client = AwsConnection(aws_conn_id="mine", botocore_config=task, **REGION).client(
        "sagemaker", otherwise={"connect_timeout": 10}
    )

    assert client.meta.config.connect_timeout == seconds


def test_a_client_goes_to_the_region_of_the_task_or_else_of_the_connection(monkeypatch):
    monkeypatch.setenv(
        "AIRFLOW_CONN_MINE", json.dumps({"conn_type": "aws", "extra": {"region_name": "eu-west-1"}})
    )

    assert AwsConnection(aws_conn_id="mine").client("logs").meta.region_name == "eu-west-1"
    assert AwsConnection(aws_conn_id="mine", **REGION).client("logs").meta.region_name == "us-east-1"
