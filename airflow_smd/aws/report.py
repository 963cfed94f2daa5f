"""Reports of runs, kept in S3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_smd.aws.addresses import split_s3_uri


class Reports:
    """The reports under one prefix, a JSON file each.

    Args:
        client: a boto3 `s3` client.
        work_uri: `s3://bucket/prefix`; reports lie under `reports/`.
    """

    def __init__(self, client: Any, work_uri: str) -> None:
        self._client = client
        self._bucket, self._prefix = split_s3_uri(work_uri)

    @property
    def region(self) -> str:
        """Return the Region that the calls go to."""
        name: str = self._client.meta.region_name
        return name

    def put(self, name: str, report: Mapping[str, Any]) -> str:
        """Keep a report and return its S3 URI; the same name is written over."""
        key = f"{self._prefix}reports/{name}.json"
        self._client.put_object(Bucket=self._bucket, Key=key, Body=json.dumps(report, indent=2).encode())
        return f"s3://{self._bucket}/{key}"
