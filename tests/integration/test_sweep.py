"""The sweeping DAG in a real Airflow, which says itself which runs are over."""

from __future__ import annotations

import uuid

import pytest

from airflow_smd.aws.lustre import FileSystems
from airflow_smd.domain.identity import TaskIdentity
from tests.integration.conftest import Run, Site

SLEEP = ["python3", "-c", "import time; time.sleep(900)"]
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2.0-gpu-py310"


def file_system(site: Site, tags: dict[str, str]) -> str:
    made = site.sandbox.client("fsx").create_file_system(
        FileSystemType="LUSTRE",
        FileSystemTypeVersion="2.15",
        StorageCapacity=1200,
        SubnetIds=[site.sandbox.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]],
        ClientRequestToken=uuid.uuid4().hex,
        LustreConfiguration={"DeploymentType": "SCRATCH_2"},
        Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
    )
    return str(made["FileSystem"]["FileSystemId"])


def training_job(site: Site, owner: TaskIdentity) -> str:
    site.sandbox.client("sagemaker").create_training_job(
        TrainingJobName=owner.attempt_name(1),
        RoleArn=site.sandbox.role_arn,
        AlgorithmSpecification={
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": SLEEP,
        },
        OutputDataConfig={"S3OutputPath": "s3://airflow-smd-demo/sweep"},
        ResourceConfig={"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
        StoppingCondition={"MaxRuntimeInSeconds": 900},
        Tags=[{"Key": key, "Value": value} for key, value in owner.tags.items()],
    )
    return owner.attempt_name(1)


def sweep(site: Site, run_id: str, **conf: object) -> Run:
    body = {"conf": conf, "logical_date": None, "dag_run_id": run_id}
    site.airflow.call("POST", "/dags/smd_sweep/dagRuns", body)
    return Run(airflow=site.airflow, dag_id="smd_sweep", run_id=run_id)


def left_by(run_id: str) -> TaskIdentity:
    return TaskIdentity(dag_id="smd_sweep", run_id=run_id, task_id="leaves")


def test_what_runs_left_is_told_about_then_removed_and_nothing_else(site: Site):
    first, second, third = (f"{name}_{uuid.uuid4().hex[:8]}" for name in ("empty", "dry", "wet"))
    assert sweep(site, first).end() == "success"
    orphans = [file_system(site, left_by(first).tags), training_job(site, left_by(first))]
    kept = {
        "keep": file_system(site, left_by(third).tags),  # the run that sweeps is not over
        "report": file_system(site, left_by("never_was").tags),
        "untagged": file_system(site, {"team": "vision"}),
    }
    try:
        dry = sweep(site, second)
        assert dry.end() == "success", dry.log("sweep")
        report = dry.result("sweep")
        assert {each["id"]: each["action"] for each in report["things"]}.items() >= {
            orphans[0]: "wait",
            orphans[1]: "wait",
            kept["report"]: "report",
        }.items()
        assert report["removed"] == []
        assert report["usd_per_day"] > 0
        job = {"TrainingJobName": orphans[1]}
        assert (
            site.sandbox.client("sagemaker").describe_training_job(**job)["TrainingJobStatus"] == "InProgress"
        )

        wet = sweep(site, third, dry_run=False, grace_hours=2 / 3600)
        assert wet.end() == "success", wet.log("sweep")

        report = wet.result("sweep")
        assert sorted(report["removed"]) == sorted(orphans)
        assert "deferred" in wet.seen["sweep"], "the grace period is waited for in the triggerer"
        actions = {each["id"]: each["action"] for each in report["things"]}
        assert kept["untagged"] not in actions
        assert (actions[kept["keep"]], actions[kept["report"]]) == ("keep", "report")
        listed = site.sandbox.client("fsx").describe_file_systems()["FileSystems"]
        left = {each["FileSystemId"] for each in listed if each["Lifecycle"] != "DELETING"}
        assert left >= set(kept.values())
        assert orphans[0] not in left
        found = site.sandbox.client("sagemaker").describe_training_job(**job)
        assert found["TrainingJobStatus"] in ("Stopping", "Stopped")
    finally:
        for file_system_id in kept.values():
            FileSystems(site.sandbox.client("fsx")).remove(file_system_id)


@pytest.mark.parametrize("conf", [{"grace_hours": -1}, {"dry_run": "perhaps"}, {"time_to_live_hours": 0}])
def test_the_form_refuses_what_makes_no_sense(site: Site, conf):
    with pytest.raises(Exception, match=r"400|422"):
        sweep(site, uuid.uuid4().hex, **conf)
