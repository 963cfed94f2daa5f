"""Processing jobs in memory; they refuse and answer as SageMaker does, and work when told to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_smd.domain.dataset import S3Folder
from airflow_smd.domain.identity import TaskIdentity
from airflow_smd.domain.processing import ProcessingRun, ProcessingStatus
from airflow_smd.errors import NameTaken
from tests.fakes.dataset import FakeDatasets


class FakeProcessingJobs:
    region = "us-east-1"
    instance_types = frozenset({"ml.m5.xlarge"})

    def __init__(self) -> None:
        self.runs: dict[str, ProcessingRun] = {}
        self.requests: dict[str, Mapping[str, Any]] = {}
        self.stopped: list[str] = []

    def launch(self, request: Mapping[str, Any]) -> None:
        name = request["ProcessingJobName"]
        if name in self.runs:
            raise NameTaken(name)
        self.requests[name] = request
        cluster = request["ProcessingResources"]["ClusterConfig"]
        output = request["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"]
        self.runs[name] = ProcessingRun(
            job_name=name,
            job_arn=f"arn:aws:sagemaker:us-east-1:123456789012:processing-job/{name}",
            status=ProcessingStatus.IN_PROGRESS,
            output_uri=output,
            instance_type=cluster["InstanceType"],
            instance_count=cluster["InstanceCount"],
            started_at=100.0,
        )

    def look(self, job_name: str) -> ProcessingRun | None:
        return self.runs.get(job_name)

    def attempts(self, identity: TaskIdentity) -> list[ProcessingRun]:
        found: list[ProcessingRun] = []
        while run := self.look(identity.attempt_name(len(found) + 1)):
            found.append(run)
        return found

    def owner(self, job_arn: str) -> str | None:
        tags = self.requests[job_arn.rpartition("/")[2]].get("Tags", [])
        return next((tag["Value"] for tag in tags if tag["Key"] == "airflow-smd:name"), None)

    def stop(self, job_name: str) -> None:
        self.stopped.append(job_name)
        run = self.runs.get(job_name)
        if run and run.status is ProcessingStatus.IN_PROGRESS:
            self.end(job_name, ProcessingStatus.STOPPING)

    def end(self, job_name: str, status: ProcessingStatus, **changes: Any) -> None:
        self.runs[job_name] = replace(self.runs[job_name], status=status, ended_at=160.0, **changes)

    def work(self, job_name: str, datasets: FakeDatasets, *, splits: tuple[str, ...] = ("train",)) -> None:
        """Do what the hosts would do: one shard each, of the whole source, and end."""
        request = self.requests[job_name]
        source = datasets.source(S3Folder.parse(request["ProcessingInputs"][0]["S3Input"]["S3Uri"]))
        folder = S3Folder.parse(self.runs[job_name].output_uri)
        hosts = self.runs[job_name].instance_count
        for host in range(hosts):
            mine = source.objects[host::hosts]
            shards = []
            for split in splits:
                name = f"{split}/shard-{host}of{hosts}-000000.tar"
                datasets.put(folder.bucket, folder.prefix + name, b"x" * 1024)
                shards.append({"name": name, "bytes": 1024, "samples": len(mine), "sha256": "0" * 64})
            part = {
                "host": host,
                "hosts": hosts,
                "splits": {split: {"shards": [shard]} for split, shard in zip(splits, shards, strict=True)},
                "classes": {},
                "skipped": {},
                "treated": {},
                "schema": {},
                "source": {
                    "files": len(mine),
                    "bytes": sum(item.size_bytes for item in mine),
                    "check": f"{sum(item.check for item in mine) % 2**64:016x}",
                },
            }
            name = f"parts/part-{host}of{hosts}.json"
            datasets.put(folder.bucket, folder.prefix + name, json.dumps(part).encode())
        self.end(job_name, ProcessingStatus.COMPLETED)
