"""What an account answers about a run's data, bucket and role, asked on the sandbox."""

import boto3
import pytest
from botocore.config import Config

from airflow_smd.aws.preflight import Account
from airflow_smd.errors import Severity
from tests.conftest import Sandbox

BUCKET = "preflight-data"


@pytest.fixture(scope="module")
def account(sandbox: Sandbox) -> Account:
    s3 = sandbox.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="raw/a.csv", Body=b"1,2\n")
    return Account(s3=s3, iam=sandbox.client("iam"))


GOOD = {"source_uri": f"s3://{BUCKET}/raw/", "work_uri": f"s3://{BUCKET}/work"}


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        pytest.param({}, [], id="all well"),
        pytest.param(
            {"source_uri": "s3://no-such-bucket-here/raw"}, ["bucket-not-readable"], id="no such bucket"
        ),
        pytest.param(
            {"source_uri": f"s3://{BUCKET}/nothing/"}, ["empty-dataset"], id="no object under the prefix"
        ),
        pytest.param({"source_uri": "raw/"}, ["s3-uri"], id="not an S3 URI"),
        pytest.param(
            {"work_uri": "s3://no-such-bucket-here/"}, ["bucket-not-readable"], id="nowhere to write"
        ),
        pytest.param({"role": "SageMakerRole"}, ["role-arn"], id="a role's name instead of its ARN"),
        pytest.param({"role": "arn:aws:iam::123456789012:user/me"}, ["role-arn"], id="a user"),
        pytest.param({"role": "arn:aws:iam::123456789012:role/Nobody"}, ["role-missing"], id="no such role"),
        pytest.param(
            {"source_uri": "raw/", "work_uri": "s3://no-such-bucket-here/", "role": ""},
            ["s3-uri", "bucket-not-readable", "role-arn"],
            id="all at once",
        ),
    ],
)
def test_every_problem_is_found_together(sandbox: Sandbox, account: Account, changes, rules):
    problems = account.problems(**{**GOOD, "role": sandbox.role_arn, **changes})

    assert [problem.rule for problem in problems] == rules
    assert all(problem.severity is Severity.ERROR and problem.remedy for problem in problems)


def test_an_endpoint_where_nothing_listens_is_one_problem_that_names_it():
    options = {
        "endpoint_url": "http://127.0.0.1:9",
        "region_name": "us-east-1",
        "config": Config(retries={"max_attempts": 0}),
    }
    account = Account(s3=boto3.client("s3", **options), iam=boto3.client("iam", **options))

    (problem,) = account.problems(**GOOD, role="arn:aws:iam::123456789012:role/Any")

    assert problem.rule == "endpoint-not-reachable"
    assert "127.0.0.1:9" in str(problem)
    assert "sandbox up" in problem.remedy
