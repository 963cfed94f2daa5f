"""The report of a run: what was made, on what, how good it is and what it cost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_smd.domain.report import run_report
from airflow_smd.errors import refuse
from airflow_smd.operators.base import SmdOperator, folder_problems

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_smd.aws.report import Reports


class TrainingReportOperator(SmdOperator):
    """Write the report of a run to S3 and to the task log.

    Args:
        training: the result of :class:`SageMakerDistributedTrainingOperator`.
        work_uri: `s3://bucket/prefix`; the report lies under `reports/`.
        preprocess: the result of :class:`SageMakerPreprocessOperator`.
        file_system: the result of :class:`LustreCreateOperator`.
        image: the result of :class:`TrainingImageBuildOperator`.

    Returns:
        `report_uri`, `summary` (text by label) and `usd` (None where a price is unknown).
    """

    template_fields: Sequence[str] = ("training", "work_uri", "preprocess", "file_system", "image")

    def __init__(
        self,
        *,
        training: Mapping[str, Any],
        work_uri: str,
        preprocess: Mapping[str, Any] | None = None,
        file_system: Mapping[str, Any] | None = None,
        image: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.training = training
        self.work_uri = work_uri
        self.preprocess = preprocess
        self.file_system = file_system
        self.image = image
        refuse(folder_problems(work_uri=work_uri))

    @cached_property
    def reports(self) -> Reports:
        """Return where reports are kept."""
        from airflow_smd.hooks.report import reports

        return reports(self.connection, self.work_uri)

    def execute(self, context: Context) -> dict[str, Any]:
        """Put the results of the run together."""
        created_at = (self.file_system or {}).get("created_at")
        report = run_report(
            training=self.training,
            preprocess=self.preprocess,
            file_system=self.file_system,
            image=self.image,
            file_system_seconds=time.time() - datetime.fromisoformat(created_at).timestamp()
            if created_at
            else 0.0,
            region=self.reports.region,
        )
        uri = self.reports.put(self.identity(context).base_name, report)
        for label, text in report["summary"].items():
            self.log.info("%s: %s", label, text)
        self.log.info("Report: %s", uri)
        return {"report_uri": uri, "summary": report["summary"], "usd": report["cost"]["usd"]}
