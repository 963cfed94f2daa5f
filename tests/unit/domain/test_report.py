from airflow_smd.domain.report import run_report

TRAINING = {
    "job_name": "smd-train-1",
    "instance_type": "ml.p4d.24xlarge",
    "instance_count": 2,
    "seconds": 3600.0,
    "billable_seconds": 1800,
    "metrics": {"accuracy": 0.9712, "loss": 0.1},
}
PREPROCESS = {
    "samples": 1437,
    "shards": 8,
    "bytes": 2_100_000,
    "reused": False,
    "seconds": 12.0,
    "instance_type": "ml.m5.xlarge",
    "instance_count": 1,
}
FILE_SYSTEM = {
    "file_system_id": "fs-0123456789abcdef0",
    "plan": {
        "deployment_type": "SCRATCH_2",
        "per_unit_storage_throughput": None,
        "storage_capacity_gib": 1200,
        "read_mbps": 234.4,
        "why": ["The data set fits."],
        "usd_per_hour": 0.24,
    },
}
IMAGE = {"image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/smd@sha256:" + "0" * 64}


def report(**changes):
    given = {
        "training": TRAINING,
        "preprocess": PREPROCESS,
        "file_system": FILE_SYSTEM,
        "image": IMAGE,
        "file_system_seconds": 1800.0,
        "region": "us-east-1",
    }
    return run_report(**given | changes)


def test_the_summary_says_what_on_what_how_good_and_for_how_much():
    summary = report()["summary"]

    assert summary["Data set"] == "1,437 samples in 8 shards, 2.1 MB, made in 12.0 s"
    assert summary["File system"] == "SCRATCH_2, 1,200 GiB, 234 MB/s"
    assert summary["Why"] == "The data set fits."
    assert summary["Accuracy"] == "0.9712"
    assert summary["Instances"] == "2 × ml.p4d.24xlarge"
    assert "sha256" in summary["Image"]


def test_the_bill_counts_billable_seconds_of_every_instance_and_the_file_systems_life():
    lines = {line["what"]: line for line in report()["cost"]["lines"]}

    hour = lines["training"]["usd"]
    assert hour == report(training=TRAINING | {"billable_seconds": 3600})["cost"]["lines"][0]["usd"] / 2
    assert lines["file system"]["usd"] == 0.12
    assert set(lines) == {"training", "preprocessing", "file system"}


def test_what_was_reused_costs_nothing():
    lines = report(preprocess=PREPROCESS | {"reused": True})["cost"]["lines"]

    assert [line["what"] for line in lines] == ["training", "file system"]


def test_an_unknown_price_is_said_not_guessed():
    cost = report(training=TRAINING | {"instance_type": "ml.new.1xlarge"})

    assert cost["cost"]["usd"] is None
    assert cost["summary"]["Would have cost on AWS"].startswith("at least $")
    assert "training" in cost["summary"]["Would have cost on AWS"]


def test_a_run_without_a_file_system_says_what_served_instead():
    without = FILE_SYSTEM | {"file_system_id": None, "input_mode": "FastFile"}

    assert report(file_system=without)["summary"]["File system"] == "none, FastFile serves"
