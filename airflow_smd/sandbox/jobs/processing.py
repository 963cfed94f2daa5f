"""A processing job from start to end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from airflow_smd.sandbox.faults import FaultKind
from airflow_smd.sandbox.jobs import layout, staging
from airflow_smd.sandbox.jobs.cloud import files_under
from airflow_smd.sandbox.jobs.containers import JobFailed, failure_reason, find_image
from airflow_smd.sandbox.jobs.execution import INTERNAL_ERROR, End, Outcome, Work
from airflow_smd.sandbox.jobs.hosts import Bind, HostPlan
from airflow_smd.sandbox.jobs.launch import Launch
from airflow_smd.sandbox.jobs.machines import Machine
from airflow_smd.sandbox.jobs.record import Job, Status

LOG_GROUP = "/aws/sagemaker/ProcessingJobs"
_EXIT_MESSAGE = "output/message"
_MAX_RUNTIME_REASON = "ClientError: Processing job exceeded MaxRuntimeInSeconds provided"


class ProcessingRun:
    """Carries out one processing job."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._request: Mapping[str, Any] = work.job.request
        self._outputs: list[tuple[staging.Mirror, bool]] = []
        """Each with whether it is uploaded while the job runs."""

    def run(self) -> None:
        """Go through the phases; call it through `Work.carry_out`."""
        work, application = self._work, self._request["AppSpecification"]
        work.provision()
        image = find_image(work.runtime, work.cloud, application["ImageUri"], self._request["RoleArn"])
        if work.stop_requested.is_set():
            self._finish(Status.STOPPED)
            return
        argv = [*application.get("ContainerEntrypoint", []), *application.get("ContainerArguments", [])]
        if not argv:
            raise JobFailed(
                "ClientError: The image has no entry point and the request has no ContainerEntrypoint"
            )
        start = Launch(argv=argv, environment={}, note="running the request's ContainerEntrypoint")
        own = {"PROCESSING_JOB_NAME": work.job.name, "PROCESSING_JOB_ARN": work.job.arn}
        own |= self._request.get("Environment") or {}
        plans: list[HostPlan] = []
        for machine in work.machines:
            binds = self._lay_out(machine)
            plans.append(work.containers.plan(machine, start, image, own, binds))
        work.update(lambda job: job.described.update(ProcessingStartTime=time.time()))
        now, stopping = time.monotonic(), self._request.get("StoppingCondition") or {}
        limits = {End.MAX_RUNTIME: now + stopping.get("MaxRuntimeInSeconds", 86_400)}
        fault = work.fault(FaultKind.FAIL)
        if fault:
            limits[End.FAULT] = now + float(fault["after_seconds"])
        outcome = work.run_hosts(plans, limits, start.note, self._push_continuous)
        self._conclude(outcome, str(fault["message"]) if fault else "")

    def fail(self, reason: str) -> None:
        """End as Failed."""
        self._finish(Status.FAILED, reason)

    def _lay_out(self, machine: Machine) -> list[Bind]:
        work, place, binds = self._work, self._work.containers.layout(machine.name), []
        place.ml.mkdir(parents=True)
        described: Any = work.job.as_aws()
        if not work.isolation.namespaces:
            described = _rewritten(described, place)
        layout.write_processing(place, described, machine, work.machines)
        for item in self._request.get("ProcessingInputs") or []:
            source = item.get("S3Input")
            if source is None or item.get("AppManaged"):
                continue
            path = source.get("LocalPath") or f"{layout.ML}/processing/input/{item['InputName']}"
            self._download(item["InputName"], source, machine, path)
            binds += place.bind(path)
        for item in (self._request.get("ProcessingOutputConfig") or {}).get("Outputs", []):
            output = item.get("S3Output")
            if output is None or item.get("AppManaged"):
                continue
            path = output.get("LocalPath") or f"{layout.ML}/processing/output/{item['OutputName']}"
            place.real(path).mkdir(parents=True, exist_ok=True)
            mirror = staging.Mirror(work.cloud, place.real(path), output["S3Uri"])
            self._outputs.append((mirror, output["S3UploadMode"] == "Continuous"))
            binds += place.bind(path)
        return binds

    def _download(self, name: str, source: Mapping[str, Any], machine: Machine, path: str) -> None:
        work, count = self._work, len(self._work.machines)
        try:
            objects = staging.objects_of(work.cloud, source["S3Uri"], source["S3DataType"])
            part = staging.share(objects, source.get("S3DataDistributionType"), machine.number, count)
            staging.download(work.cloud, part, work.containers.layout(machine.name).real(path))
        except (staging.NoObjects, KeyError) as error:
            raise JobFailed(f"ClientError: Failed to download data for input {name}. {error}") from error

    def _push_continuous(self) -> None:
        for mirror, continuous in self._outputs:
            if continuous:
                mirror.push(settled=False)

    def _conclude(self, outcome: Outcome, message: str) -> None:
        # AWS uploads what is there at the end of a stopped or failed job in Continuous mode only.
        for mirror, continuous in self._outputs:
            if outcome.end is End.DONE or continuous:
                mirror.push()
        self._keep_exit_message()
        match outcome.end:
            case End.DONE:
                self._finish(Status.COMPLETED)
            case End.FAILED:
                place = self._work.containers.layout(outcome.host)
                raise JobFailed(failure_reason(place.ml, outcome.code, training=False))
            case End.MAX_RUNTIME:
                self._finish(Status.STOPPED, _MAX_RUNTIME_REASON)
            case End.STOPPED:
                self._finish(Status.STOPPED)
            case End.FAULT:
                raise JobFailed(f"AlgorithmError: {message}")
            case _:
                raise JobFailed(INTERNAL_ERROR)

    def _keep_exit_message(self) -> None:
        """ExitMessage is what a container leaves in /opt/ml/output/message, at most 1,024 characters."""
        for machine in self._work.machines:
            written = self._work.containers.layout(machine.name).ml / _EXIT_MESSAGE
            if written in files_under(written.parent):
                text = written.read_text(errors="replace")[:1024]
                self._work.update(lambda job, text=text: job.described.update(ExitMessage=text))  # type: ignore[misc]
                return

    def _finish(self, status: Status, reason: str | None = None) -> None:
        def change(job: Job) -> None:
            job.described["ProcessingEndTime"] = time.time()
            job.finish(status, reason)

        self._work.update(change)


def _rewritten(value: Any, place: layout.Layout) -> Any:
    if isinstance(value, Mapping):
        return {key: _rewritten(item, place) for key, item in value.items()}
    if isinstance(value, list):
        return [_rewritten(item, place) for item in value]
    return place.rewritten(value) if isinstance(value, str) else value
