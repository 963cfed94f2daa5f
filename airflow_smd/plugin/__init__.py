"""What this package adds to every Airflow process; it is imported by all of them, so it imports little."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class AirflowSmdPlugin(AirflowPlugin):
    """The pages and links of the package."""

    name = "airflow_smd"
