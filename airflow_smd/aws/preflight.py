"""Questions about an account that cost nothing to ask before a run."""

from __future__ import annotations

import re
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError

from airflow_smd.aws.addresses import split_s3_uri
from airflow_smd.errors import Problem, Severity

ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")


class Account:
    """What an account answers about the buckets and roles that a run would use.

    Args:
        s3: a boto3 `s3` client.
        iam: a boto3 `iam` client.
    """

    def __init__(self, s3: Any, iam: Any) -> None:
        self._s3 = s3
        self._iam = iam

    @property
    def region(self) -> str:
        """Return the Region that the calls go to."""
        name: str = self._s3.meta.region_name
        return name

    def problems(self, *, source_uri: str, work_uri: str, role: str) -> list[Problem]:
        """Return what is wrong with the data set, the working bucket and the role."""
        try:
            return [
                *self._prefix_problems("source_uri", source_uri, must_hold_data=True),
                *self._prefix_problems("work_uri", work_uri, must_hold_data=False),
                *self._role_problems(role),
            ]
        except EndpointConnectionError as error:
            return [_not_reachable(error)]

    def _prefix_problems(self, field: str, uri: str, *, must_hold_data: bool) -> list[Problem]:
        try:
            bucket, prefix = split_s3_uri(uri)
        except ValueError as error:
            return [
                Problem(
                    rule="s3-uri",
                    field=field,
                    value=uri,
                    message=str(error),
                    remedy="Write s3://bucket/prefix.",
                )
            ]
        try:
            page = self._s3.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)
        except ClientError as error:
            return [_refused(field, uri, bucket, error)]
        if must_hold_data and not page.get("KeyCount"):
            return [
                Problem(
                    rule="empty-dataset",
                    field=field,
                    value=uri,
                    message=f"The bucket {bucket} has no object under {prefix!r}.",
                    remedy="Correct the prefix, or put the data there.",
                )
            ]
        return []

    def _role_problems(self, role: str) -> list[Problem]:
        if not ROLE_ARN.fullmatch(role):
            return [
                Problem(
                    rule="role-arn",
                    field="job.role",
                    value=role,
                    message="This is not the ARN of a role.",
                    remedy="Write arn:aws:iam::<12 digits>:role/<name>.",
                )
            ]
        try:
            self._iam.get_role(RoleName=role.rpartition("/")[2])
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "NoSuchEntity":
                return [
                    Problem(
                        rule="role-missing",
                        field="job.role",
                        value=role,
                        message="The account has no such role.",
                        remedy="Create it, trusted by sagemaker.amazonaws.com, or correct the name.",
                    )
                ]
            return [
                Problem(
                    rule="role-unknown",
                    field="job.role",
                    value=role,
                    message=f"Whether the role exists could not be asked ({code}).",
                    remedy="Allow iam:GetRole to Airflow's own role to have it checked.",
                    severity=Severity.NOTE,
                )
            ]
        return []


def _refused(field: str, uri: str, bucket: str, error: ClientError) -> Problem:
    code = error.response["Error"]["Code"]
    message, remedy = {
        "NoSuchBucket": (f"There is no bucket {bucket}.", "Create it, or correct the name."),
        "AccessDenied": (
            f"Airflow's role may not list {bucket}.",
            "Allow s3:ListBucket and s3:GetObject on it to Airflow's role.",
        ),
        "PermanentRedirect": (
            f"The bucket {bucket} is in another Region.",
            "Use a bucket of the job's Region.",
        ),
    }.get(code, (f"S3 refused to list it: {error}", "Read S3's answer."))
    return Problem(rule="bucket-not-readable", field=field, value=uri, message=message, remedy=remedy)


def _not_reachable(error: BotoCoreError) -> Problem:
    return Problem(
        rule="endpoint-not-reachable",
        field="aws_conn_id.endpoint_url",
        value=str(error.kwargs.get("endpoint_url", "")),
        message="Nothing answers there.",
        remedy="Correct endpoint_url of the connection, or start the local endpoint: airflow-smd sandbox up.",
    )
