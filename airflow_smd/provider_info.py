"""What Airflow's provider manager is told about this package."""

from __future__ import annotations

from typing import Any

from airflow_smd import __version__

INTEGRATION = "Amazon SageMaker distributed training"
FEATURES = ("image", "lustre", "preflight", "preprocess", "report", "sweep", "training")


def get_provider_info() -> dict[str, Any]:
    """Return what the entry point `apache_airflow_provider` promises (Airflow's provider schema)."""
    return {
        "package-name": "airflow-smd",
        "name": INTEGRATION,
        "description": "Prepare data, size FSx for Lustre, build images and train on Amazon SageMaker.",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": INTEGRATION,
                "external-doc-url": "https://docs.aws.amazon.com/sagemaker/latest/dg/distributed-training.html",
                "tags": ["aws"],
            }
        ],
        "operators": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [f"airflow_smd.operators.{feature}" for feature in FEATURES],
            }
        ],
        "config": {
            "smd": {
                "description": "Distributed training on Amazon SageMaker.",
                "options": {
                    "deployment": {
                        "description": (
                            "Tells apart deployments that share an AWS account and have the same DAGs;"
                            " part of the names of everything that is started there."
                        ),
                        "version_added": __version__,
                        "type": "string",
                        "example": "staging",
                        "default": "",
                    },
                    "poll_seconds": {
                        "description": "Pause between two looks at AWS while a task waits, in seconds.",
                        "version_added": __version__,
                        "type": "float",
                        "example": None,
                        "default": "30",
                    },
                },
            }
        },
    }
