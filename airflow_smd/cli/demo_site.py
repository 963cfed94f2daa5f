"""What the demo's AWS account holds before the first run: a bucket, raw data, a network."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from airflow_smd.errors import SmdError

BUCKET = "airflow-smd-demo"
ACCOUNT_ID = "123456789012"
REGION = "us-east-1"
SECURITY_GROUP = "airflow-smd-demo"
RAW_FILES = 8
LUSTRE_PORTS = ((988, 988), (1018, 1023))
"""What clients and servers of Lustre open to each other (FSx for Lustre User Guide, getting started)."""
CREDENTIALS = {"aws_access_key_id": "demo", "aws_secret_access_key": "demo"}


class NoReport(SmdError):
    """The run left no report."""


def dags_folder() -> Path:
    """Return the folder of our DAGs: in a checkout beside the package, in a wheel inside it."""
    package = Path(__file__).parents[1]
    beside = package.parent / "dags"
    return beside if (beside / "smd_retrain.py").exists() else package / "example_dags"


def environment(endpoint: str) -> dict[str, str]:
    """Return what points an Airflow at the sandbox, and the site's settings that the DAG reads."""
    connection = {
        "conn_type": "aws",
        "login": CREDENTIALS["aws_access_key_id"],
        "password": CREDENTIALS["aws_secret_access_key"],
        "extra": {"region_name": REGION, "endpoint_url": endpoint},
    }
    network = _network(endpoint)
    site = {
        "role": f"arn:aws:iam::{ACCOUNT_ID}:role/SageMakerRole",
        "codebuild_role": f"arn:aws:iam::{ACCOUNT_ID}:role/CodeBuildRole",
        "work_uri": f"s3://{BUCKET}/smd",
        **network,
    }
    return {
        "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(connection),
        "AIRFLOW_VAR_SMD": json.dumps(site),
        "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "5",
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",  # nothing starts but what is asked for
        "AIRFLOW__SMD__POLL_SECONDS": "1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": CREDENTIALS["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": CREDENTIALS["aws_secret_access_key"],
    }


def client(endpoint: str, service: str) -> Any:
    """Return a boto3 client of the sandbox."""
    import boto3

    return boto3.client(service, endpoint_url=endpoint, region_name=REGION, **CREDENTIALS)


def furnish(endpoint: str) -> None:
    """Put scikit-learn's handwritten digits (1,797 of UCI's, 8x8 pixels of 0..16) into S3 as CSV files."""
    if find_spec("sklearn") is None:
        raise SmdError("the demo's data comes with scikit-learn: pip install 'airflow-smd[sandbox]'")
    from sklearn.datasets import load_digits

    s3 = client(endpoint, "s3")
    s3.create_bucket(Bucket=BUCKET)
    pixels, labels = load_digits(return_X_y=True)
    for number in range(RAW_FILES):
        text = io.StringIO()
        for row, label in zip(pixels[number::RAW_FILES], labels[number::RAW_FILES], strict=True):
            text.write(",".join(f"{pixel:.0f}" for pixel in row) + f",{label}\n")
        s3.put_object(Bucket=BUCKET, Key=f"raw/digits/digits-{number}.csv", Body=text.getvalue())


def newest_report(endpoint: str, since: float) -> dict[str, Any]:
    """Return the report of the run that began at `since`."""
    s3 = client(endpoint, "s3")
    found = s3.list_objects_v2(Bucket=BUCKET, Prefix="smd/reports/").get("Contents", [])
    # S3 keeps whole seconds
    found = [item for item in found if item["LastModified"].timestamp() >= int(since)]
    if not found:
        raise NoReport(f"no report under s3://{BUCKET}/smd/reports/")
    newest = max(found, key=lambda item: item["LastModified"])
    report: dict[str, Any] = json.load(s3.get_object(Bucket=BUCKET, Key=newest["Key"])["Body"])
    return report


def sweep(endpoint: str) -> None:
    """Stop the jobs and builds and delete the file systems that an interrupted run left in the account."""
    sagemaker, fsx, codebuild = (client(endpoint, name) for name in ("sagemaker", "fsx", "codebuild"))
    for job in sagemaker.list_training_jobs(StatusEquals="InProgress")["TrainingJobSummaries"]:
        sagemaker.stop_training_job(TrainingJobName=job["TrainingJobName"])
    for job in sagemaker.list_processing_jobs(StatusEquals="InProgress")["ProcessingJobSummaries"]:
        sagemaker.stop_processing_job(ProcessingJobName=job["ProcessingJobName"])
    for file_system in fsx.describe_file_systems()["FileSystems"]:
        if file_system["Lifecycle"] != "DELETING":
            fsx.delete_file_system(FileSystemId=file_system["FileSystemId"])
    if builds := codebuild.list_builds()["ids"]:
        for build in codebuild.batch_get_builds(ids=builds[:100])["builds"]:
            if build["buildStatus"] == "IN_PROGRESS":
                codebuild.stop_build(id=build["id"])


def _network(endpoint: str) -> dict[str, Any]:
    """Return a subnet of the default VPC and a security group that lets Lustre through to itself."""
    ec2 = client(endpoint, "ec2")
    subnet = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"][0]
    groups = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": [SECURITY_GROUP]}])
    if groups["SecurityGroups"]:
        group = groups["SecurityGroups"][0]["GroupId"]
    else:
        group = ec2.create_security_group(
            GroupName=SECURITY_GROUP, Description="Lustre and training", VpcId=subnet["VpcId"]
        )["GroupId"]
        ec2.authorize_security_group_ingress(
            GroupId=group,
            IpPermissions=[
                {
                    "IpProtocol": "tcp",
                    "FromPort": first,
                    "ToPort": last,
                    "UserIdGroupPairs": [{"GroupId": group}],
                }
                for first, last in LUSTRE_PORTS
            ],
        )
    return {"subnet_id": subnet["SubnetId"], "security_group_ids": [group]}
