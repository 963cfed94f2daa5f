"""Distributed training on Amazon SageMaker as Apache Airflow tasks."""

__version__ = "0.1.0"
