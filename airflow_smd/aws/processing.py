"""SageMaker processing jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from airflow_smd.aws.jobs import NOT_FOUND, SageMakerJobs, error_code, unix
from airflow_smd.domain.processing import ProcessingRun, ProcessingStatus
from airflow_smd.errors import NameTaken, PreprocessTransient, ProcessingRefused, UnexpectedAnswer

_REFUSALS = ("ValidationException", "AccessDeniedException", "AccessDenied", "InvalidParameterValue")


class ProcessingJobs(SageMakerJobs[ProcessingRun]):
    """The processing jobs of one account and Region."""

    @property
    def instance_types(self) -> frozenset[str]:
        """Return the instance types that the installed botocore knows for processing."""
        return frozenset(self._client.meta.service_model.shape_for("ProcessingInstanceType").enum)

    def launch(self, request: Mapping[str, Any]) -> None:
        """Start the job that `request` (CreateProcessingJob) describes.

        Raises:
            NameTaken: a job of this name is there already.
            PreprocessTransient: the account's quota is used up.
            ProcessingRefused: SageMaker would refuse this request again.
        """
        name = request["ProcessingJobName"]
        try:
            self._client.create_processing_job(**request)
        except ClientError as error:
            code, message = error_code(error), error.response["Error"]["Message"]
            if code == "ResourceInUse":
                raise NameTaken(name) from error
            if code == "ResourceLimitExceeded":
                raise PreprocessTransient(name, f"{code}: {message}", "") from error
            if code in _REFUSALS:
                raise ProcessingRefused(name, code, message) from error
            raise

    def look(self, job_name: str) -> ProcessingRun | None:
        """Return the job as it stands, None if there is no job of this name."""
        try:
            return _run(self._client.describe_processing_job(ProcessingJobName=job_name))
        except ClientError as error:
            if error_code(error) in NOT_FOUND:
                return None
            raise

    def stop(self, job_name: str) -> None:
        """Ask for the job's end; a job that is over is left alone."""
        try:
            self._client.stop_processing_job(ProcessingJobName=job_name)
        except ClientError as error:
            if error_code(error) not in NOT_FOUND:
                raise


def _run(answer: Mapping[str, Any]) -> ProcessingRun:
    try:
        status = ProcessingStatus(answer["ProcessingJobStatus"])
    except ValueError as error:
        raise UnexpectedAnswer(
            f"{answer['ProcessingJobName']} has the status {answer['ProcessingJobStatus']!r}"
        ) from error
    cluster = answer["ProcessingResources"]["ClusterConfig"]
    outputs = answer.get("ProcessingOutputConfig", {}).get("Outputs", [])
    return ProcessingRun(
        job_name=answer["ProcessingJobName"],
        job_arn=answer["ProcessingJobArn"],
        status=status,
        failure_reason=answer.get("FailureReason", ""),
        exit_message=answer.get("ExitMessage", ""),
        output_uri=next((output["S3Output"]["S3Uri"] for output in outputs if "S3Output" in output), ""),
        instance_type=cluster.get("InstanceType", ""),
        instance_count=cluster.get("InstanceCount", 0),
        created_at=unix(answer.get("CreationTime")),
        started_at=unix(answer.get("ProcessingStartTime")),
        ended_at=unix(answer.get("ProcessingEndTime")),
    )
