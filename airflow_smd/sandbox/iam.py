"""What moto's IAM lacks."""

from __future__ import annotations

from airflow_smd.sandbox.runtime import Runtime


def register(runtime: Runtime) -> None:
    """Add to moto's IAM what it lacks."""
