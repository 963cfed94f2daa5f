"""These tests call `execute` themselves, which Airflow allows in its test mode only."""

from airflow.sdk.bases.operator import ExecutorSafeguard

ExecutorSafeguard.test_mode = True
