"""A training job from Starting to its end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_smd.sandbox.faults import FaultKind
from airflow_smd.sandbox.jobs import launch, layout, staging
from airflow_smd.sandbox.jobs.cloud import join_uri
from airflow_smd.sandbox.jobs.containers import (
    JobFailed,
    failure_reason,
    find_image,
    free_port,
    make_ssh_keys,
)
from airflow_smd.sandbox.jobs.execution import End, Outcome, Work
from airflow_smd.sandbox.jobs.hosts import Bind, HostPlan
from airflow_smd.sandbox.jobs.machines import Machine
from airflow_smd.sandbox.jobs.record import Job, Secondary, Status
from airflow_smd.sandbox.runtime import Image

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
SPOT_BILLED_SHARE = 0.3
"""Share of the training time that a spot job is billed here; an assumption, AWS promises up to 90 % off."""
_FINAL = {
    End.STOPPED: (Secondary.STOPPED, "Training job stopped"),
    End.MAX_RUNTIME: (
        Secondary.MAX_RUNTIME_EXCEEDED,
        "Training job runtime exceeded MaxRuntimeInSeconds provided",
    ),
    End.MAX_WAIT: (Secondary.MAX_WAIT_TIME_EXCEEDED, "Training job exceeded MaxWaitTimeInSeconds provided"),
}


_BEFORE_THE_END = (Secondary.STARTING, Secondary.DOWNLOADING, Secondary.TRAINING)


class TrainingRun:
    """Carries out one training job."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._job = work.job
        self._request: Mapping[str, Any] = work.job.request
        self._spot = bool(self._request.get("EnableManagedSpotTraining"))
        self._started = time.monotonic()
        self._trained_seconds = 0.0
        self._note = ""
        self._checkpoints: list[staging.Mirror] = []

    def run(self) -> None:
        """Go through the phases; call it through `Work.carry_out`."""
        while (outcome := self._attempt()).end is End.INTERRUPTED:
            self._enter(
                Secondary.INTERRUPTED, "The spot capacity was reclaimed; the job waits for new capacity"
            )
            self._work.pause(0.5)
        self._conclude(outcome)

    def fail(self, reason: str) -> None:
        """End as Failed, with the transition and times that AWS shows."""

        def change(job: Job) -> None:
            job.enter(Secondary.FAILED, "Training job failed")
            self._close_times(job)
            job.finish(Status.FAILED, reason)

        self._work.update(change)

    def _attempt(self) -> Outcome:
        self._enter(Secondary.STARTING, "Starting the training job")
        self._work.provision()
        self._enter(Secondary.STARTING, "Preparing the instances for training")
        uri = self._request["AlgorithmSpecification"].get("TrainingImage", "")
        image = find_image(self._work.runtime, self._work.cloud, uri, self._request["RoleArn"])
        if self._work.stop_requested.is_set():
            return Outcome(End.STOPPED)
        self._enter(Secondary.DOWNLOADING, "Downloading input data")
        self._work.update(lambda job: job.described.setdefault("TrainingStartTime", time.time()) and None)
        binds = self._lay_out(image)
        self._enter(Secondary.DOWNLOADING, "Downloading the training image")
        plans = self._plans(image, binds)
        self._enter(Secondary.TRAINING, "Training image download completed. Training in progress.")
        return self._train(plans)

    def _lay_out(self, image: Image | None) -> dict[str, list[Bind]]:
        """Write every host's /opt/ml; return the binds that namespace hosts need on top."""
        work = self._work
        if work.isolation.namespaces and not (work.directory / "ssh").exists():
            make_ssh_keys(work.directory)
        binds: dict[str, list[Bind]] = {}
        for machine in work.machines:
            place = work.containers.layout(machine.name)
            if place.directory.exists():
                shutil.rmtree(place.directory)
            place.ml.mkdir(parents=True)
            layout.write_training(place, self._request, machine, work.machines)
            for layer in image.layers if image else ():
                if (layer / "opt/ml/code").is_dir():
                    shutil.copytree(layer / "opt/ml/code", place.ml / "code", dirs_exist_ok=True)
            binds[machine.name] = self._channels(machine)
        self._checkpoints = self._mirrors()
        for machine, mirror in zip(work.machines, self._checkpoints, strict=False):
            mirror.directory.mkdir(parents=True, exist_ok=True)
            mirror.fetch()
            binds[machine.name] += work.containers.layout(machine.name).bind(self._checkpoint_path())
        return binds

    def _channels(self, machine: Machine) -> list[Bind]:
        work, binds = self._work, []
        for channel in self._request.get("InputDataConfig") or []:
            if not layout.uses_channel(channel, machine):
                continue
            target = f"{layout.ML}/input/data/{channel['ChannelName']}"
            real = work.containers.layout(machine.name).real(target)
            if source := staging.s3_source(channel):
                users = [other for other in work.machines if layout.uses_channel(channel, other)]
                try:
                    objects = staging.objects_of(work.cloud, source["S3Uri"], source["S3DataType"])
                    part = staging.share(
                        objects, source.get("S3DataDistributionType"), users.index(machine), len(users)
                    )
                    staging.download(work.cloud, part, real)
                except (staging.NoObjects, KeyError) as error:
                    raise JobFailed(
                        f"ClientError: Data download failed:Failed to download data. {error}"
                    ) from error
            else:
                binds += self._file_system(channel, target, real)
        return binds

    def _file_system(self, channel: Mapping[str, Any], target: str, real: Any) -> list[Bind]:
        source = channel["DataSource"]["FileSystemDataSource"]
        try:
            directory = self._work.runtime.file_system_directory(
                source["FileSystemId"], source["DirectoryPath"]
            )
        except KeyError:
            directory = None
        if directory is None or not directory.is_dir():
            raise JobFailed(
                f"ClientError: Unable to mount file system: {source['FileSystemId']} directory path:"
                f" {source['DirectoryPath']}. No such file or directory."
            )
        if self._work.isolation.namespaces:
            real.mkdir(parents=True, exist_ok=True)
            return [Bind(source=directory, target=target, read_only=source["FileSystemAccessMode"] == "ro")]
        real.symlink_to(
            directory, target_is_directory=True
        )  # plain processes share the mount, hence writable
        return []

    def _checkpoint_path(self) -> str:
        return str(self._request["CheckpointConfig"].get("LocalPath") or layout.CHECKPOINTS)

    def _mirrors(self) -> list[staging.Mirror]:
        config = self._request.get("CheckpointConfig")
        if not config:
            return []
        places = [self._work.containers.layout(machine.name) for machine in self._work.machines]
        return [
            staging.Mirror(self._work.cloud, place.real(self._checkpoint_path()), config["S3Uri"])
            for place in places
        ]

    def _plans(self, image: Image | None, binds: Mapping[str, Sequence[Bind]]) -> list[HostPlan]:
        work = self._work
        start = launch.plan(work.runtime, self._request, image, work.isolation)
        own = {
            "TRAINING_JOB_NAME": self._job.name,
            "TRAINING_JOB_ARN": self._job.arn,
            **(self._request.get("Environment") or {}),
        }
        if not work.isolation.namespaces:
            own["SMD_SANDBOX_MASTER_PORT"] = str(free_port())
        plans = [
            work.containers.plan(machine, start, image, own, binds[machine.name]) for machine in work.machines
        ]
        self._note = start.note
        return plans

    def _train(self, plans: Sequence[HostPlan]) -> Outcome:
        now, stopping = time.monotonic(), self._request.get("StoppingCondition") or {}
        limits = {End.MAX_RUNTIME: now + stopping.get("MaxRuntimeInSeconds", 86_400) - self._trained_seconds}
        if self._spot and "MaxWaitTimeInSeconds" in stopping:
            limits[End.MAX_WAIT] = self._started + stopping["MaxWaitTimeInSeconds"]
        if self._spot and (fault := self._work.fault(FaultKind.SPOT_INTERRUPTION)):
            limits[End.INTERRUPTED] = now + float(fault["after_seconds"])
        message = ""
        if fault := self._work.fault(FaultKind.FAIL):
            limits[End.FAULT] = now + float(fault["after_seconds"])
            message = str(fault["message"])
        outcome = self._work.run_hosts(
            plans, limits, self._note, lambda: self._push_checkpoints(settled=False)
        )
        self._trained_seconds += time.monotonic() - now
        self._push_checkpoints(settled=True)
        self._save_metrics()
        if outcome.end is End.FAULT:
            self._upload(model=False)
            raise JobFailed(f"AlgorithmError: {message}, exit code: 1")
        return outcome

    def _push_checkpoints(self, *, settled: bool) -> None:
        for mirror in self._checkpoints:
            mirror.push(settled=settled)

    def _save_metrics(self) -> None:
        final = [
            {"MetricName": name, "Value": value, "Timestamp": moment}
            for name, (value, moment) in self._work.log.final_metrics.items()
        ]
        self._work.update(lambda job: job.described.update({"FinalMetricDataList": final} if final else {}))

    def _conclude(self, outcome: Outcome) -> None:
        match outcome.end:
            case End.ABANDONED:
                return
            case End.FAILED:
                self._upload(model=False)
                place = self._work.containers.layout(outcome.host)
                raise JobFailed(failure_reason(place.ml, outcome.code, training=True))
            case End.DONE:
                self._enter(Secondary.UPLOADING, "Uploading generated training model")
                self._upload(model=True)
                self._finish(Status.COMPLETED, Secondary.COMPLETED, "Training job completed")
            case _:
                if outcome.end is not End.STOPPED:
                    self._enter(Secondary.STOPPING, "Stopping the training job")
                self._enter(Secondary.UPLOADING, "Uploading generated training model")
                self._upload(model=True)
                self._finish(Status.STOPPED, *_FINAL[outcome.end])

    def _upload(self, *, model: bool) -> None:
        work, output = self._work, self._request["OutputDataConfig"]
        uri = join_uri(output["S3OutputPath"], self._job.name, "output")
        compressed = output.get("CompressionType") != "NONE"
        outputs = [work.containers.layout(machine.name).ml / "output" / "data" for machine in work.machines]
        staging.upload_artifacts(work.cloud, outputs, uri, "output", work.directory, compressed=compressed)
        if model:
            models = [work.containers.layout(machine.name).ml / "model" for machine in work.machines]
            staging.upload_artifacts(work.cloud, models, uri, "model", work.directory, compressed=compressed)
            artifact = join_uri(uri, "model.tar.gz" if compressed else "model/")
            work.update(lambda job: job.described.update(ModelArtifacts={"S3ModelArtifacts": artifact}))

    def _finish(self, status: Status, secondary: Secondary, message: str) -> None:
        def change(job: Job) -> None:
            job.enter(secondary, message)
            self._close_times(job)
            job.finish(status)

        self._work.update(change)

    def _close_times(self, job: Job) -> None:
        now = time.time()
        if "TrainingStartTime" not in job.described:
            return
        seconds = max(1, round(now - job.described["TrainingStartTime"]))
        billed = max(1, round(seconds * SPOT_BILLED_SHARE)) if self._spot else seconds
        job.described |= {
            "TrainingEndTime": now,
            "TrainingTimeInSeconds": seconds,
            "BillableTimeInSeconds": billed,
        }

    def _enter(self, secondary: Secondary, message: str) -> None:
        if self._work.stop_requested.is_set() and secondary in _BEFORE_THE_END:
            return  # StopTrainingJob has already set Stopping
        self._work.update(lambda job: job.enter(secondary, message))
