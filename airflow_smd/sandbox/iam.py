"""What moto's IAM lacks."""

from __future__ import annotations

from airflow_smd.sandbox.runtime import Runtime


def register(runtime: Runtime) -> None:
    """Hook into moto's IAM."""
