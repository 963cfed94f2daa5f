from airflow_smd.aws.dataset import Datasets
from airflow_smd.aws.logs import JobLogs
from airflow_smd.aws.processing import ProcessingJobs
from airflow_smd.hooks.connection import AwsConnection
from airflow_smd.hooks.processing import ProcessingHook


def test_jobs_and_data_sets_are_those_of_the_connection():
    hook = ProcessingHook(AwsConnection(aws_conn_id=None, region_name="eu-west-1"))

    assert isinstance(hook.datasets, Datasets)
    assert isinstance(hook.jobs, ProcessingJobs)
    assert isinstance(hook.logs, JobLogs)
    assert hook.jobs.region == "eu-west-1"
