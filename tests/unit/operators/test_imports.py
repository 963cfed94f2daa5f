"""DAG files are parsed every few seconds: the operators bring nothing heavy with them."""

import subprocess
import sys

import pytest

from airflow_smd import operators

HEAVY = {
    "sagemaker",
    "torch",
    "pandas",
    "moto",
    "fastapi",
    "boto3",
    "botocore",
    "numpy",
    "airflow.providers.amazon",
}


def modules_after(program: str) -> set[str]:
    code = f"{program}\nimport sys\nprint(*sys.modules, sep='\\n')"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(answer.stdout.splitlines())


@pytest.fixture(scope="module")
def floor() -> set[str]:
    return modules_after("import airflow.sdk; from airflow.sdk import DAG, Param, BaseOperator")


@pytest.mark.parametrize("name", operators.__all__)
def test_an_operator_loads_nothing_heavy(name: str, floor: set[str]):
    loaded = modules_after(
        f"from airflow.sdk import DAG, Param, BaseOperator\nfrom airflow_smd.operators import {name}"
    )

    assert not (loaded - floor) & HEAVY


def test_a_misspelt_operator_is_named():
    with pytest.raises(AttributeError, match="TrainOperator"):
        operators.TrainOperator  # noqa: B018
