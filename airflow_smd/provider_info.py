"""What Airflow's provider manager is told about this package."""

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the metadata that the entry point `apache_airflow_provider` promises."""
    return {
        "package-name": "airflow-smd",
        "name": "SageMaker distributed training",
        "description": "Prepare data, size FSx for Lustre, build images and train on Amazon SageMaker.",
        "versions": ["0.1.0"],
    }
