"""Airflow accepts what the package tells about itself."""

import json
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files

import jsonschema

from airflow_smd import operators
from airflow_smd.provider_info import get_provider_info


def test_airflows_provider_schema_accepts_the_information():
    schema = json.loads((files("airflow") / "provider_info.schema.json").read_text())

    jsonschema.validate(get_provider_info(), schema)


def test_every_operator_is_listed_and_every_listed_module_imports():
    (listed,) = get_provider_info()["operators"]

    modules = {import_module(name).__name__ for name in listed["python-modules"]}
    assert modules == {getattr(operators, name).__module__ for name in operators.__all__}


def test_the_entry_points_lead_to_it():
    (provider,) = [
        point for point in entry_points(group="apache_airflow_provider") if point.dist.name == "airflow-smd"
    ]
    (plugin,) = [point for point in entry_points(group="airflow.plugins") if point.dist.name == "airflow-smd"]

    assert provider.load()() == get_provider_info()
    assert plugin.load().name == "airflow_smd"
