"""Jobs on disk and as AWS describes them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from airflow_smd.sandbox.jobs.record import Job, Kind, Secondary, Status, Store


def job(name: str = "a", **request: object) -> Job:
    made = Job(
        kind=Kind.TRAINING, region="us-east-1", request={"TrainingJobName": name, **request}, tags={"k": "v"}
    )
    made.begin()
    return made


def test_saved_job_is_there_after_a_restart(tmp_path: Path) -> None:
    made = job(HyperParameters={"lr": "0.1"})
    made.enter(Secondary.STARTING, "Starting the training job")
    Store(tmp_path).save(made)

    found = Store(tmp_path).find(Kind.TRAINING, "a")

    assert found == made
    assert found.tags == {"k": "v"}


def test_training_and_processing_jobs_may_share_a_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    other = Job(kind=Kind.PROCESSING, region="us-east-1", request={"ProcessingJobName": "a"})
    other.begin()
    store.save(job())
    store.save(other)

    store.delete(other)

    assert Store(tmp_path).find(Kind.TRAINING, "a")
    assert Store(tmp_path).find(Kind.PROCESSING, "a") is None


def test_new_message_of_a_phase_does_not_begin_it_again() -> None:
    made = job()
    made.enter(Secondary.STARTING, "Starting the training job")
    made.enter(Secondary.STARTING, "Preparing the instances for training")
    made.enter(Secondary.DOWNLOADING, "Downloading input data")

    found = made.as_aws()["SecondaryStatusTransitions"]

    assert [(item["Status"], item["StatusMessage"]) for item in found] == [
        ("Starting", "Preparing the instances for training"),
        ("Downloading", "Downloading input data"),
    ]
    assert isinstance(found[0]["EndTime"], datetime)


def test_times_are_told_with_their_zone_and_tags_are_not_told() -> None:
    made = job(Tags=[{"Key": "k", "Value": "v"}])

    assert made.as_aws()["CreationTime"].tzinfo is UTC
    assert "Tags" not in made.as_aws()


def test_reason_is_cut_where_aws_cuts_it() -> None:
    made = job()

    made.finish(Status.FAILED, "x" * 2000)

    assert len(made.as_aws()["FailureReason"]) == 1024
