"""Waiting for a grace period."""

from importlib import import_module

import pytest

from airflow_smd.triggers.sweep import GraceTrigger

WAIT = {"connection": {"aws_conn_id": "none"}, "poll_seconds": 7.0, "deadline": 9.0}


def waiting(until):
    return GraceTrigger(until=until, first_seen={"fs-1": 1.0}, removed={"fs-0": "DELETING"}, **WAIT)


@pytest.mark.parametrize(
    ("until", "fires"), [pytest.param(0.0, True, id="over"), pytest.param(4e9, False, id="not over")]
)
def test_it_fires_when_the_grace_period_is_over(until, fires):
    said = {"until": until, "first_seen": {"fs-1": 1.0}, "removed": {"fs-0": "DELETING"}}

    assert waiting(until).look() == (said if fires else None)


def test_it_is_rebuilt_from_what_it_serializes():
    path, arguments = waiting(5.0).serialize()

    module, _, name = path.rpartition(".")
    assert getattr(import_module(module), name)(**arguments).serialize() == (path, arguments)
