import json

import pytest

from airflow_smd.container.mapping import Job
from airflow_smd.domain.dataset import Source, SourceObject
from airflow_smd.domain.preprocess import (
    default_image,
    image_problems,
    plan,
    plan_problems,
    request,
    volume_gb,
)
from airflow_smd.domain.preprocess_arguments import wish_of
from airflow_smd.domain.units import GIB
from airflow_smd.errors import Severity


def wish(**changes):
    return wish_of(
        {
            "source_uri": "s3://data/raw",
            "output_uri": "s3://data/shards",
            "transform": {"kind": "tabular"},
            "world_sizes": [1, 2],
            "role": "arn:aws:iam::123456789012:role/Worker",
            "instance_type": "ml.m5.xlarge",
            "instance_count": 1,
            **changes,
        }
    )


def source(*names, size=100):
    objects = [SourceObject(name=name, etag=name, size_bytes=size) for name in names or ("a.csv", "b.csv")]
    return Source(uri="s3://data/raw/", objects=objects)


def rules(given, data):
    return [problem.rule for problem in plan_problems(given, data)]


def test_the_machines_do_not_change_where_the_shards_go():
    """Shards of two instances serve as well as shards of one."""
    one = plan(wish(), source())
    two = plan(wish(instance_count=2, instance_type="ml.c5.large", job={"volume_gb": 99}), source())

    assert one.folder == two.folder


@pytest.mark.parametrize(
    ("changes", "data", "code"),
    [
        pytest.param({}, source("a.csv"), "", id="data"),
        pytest.param({"transform": {"kind": "copy"}}, source(), "", id="transform"),
        pytest.param({"world_sizes": [1, 2, 4]}, source(), "", id="world sizes"),
        pytest.param({"sharding": {"seed": 1}}, source(), "", id="seed"),
        pytest.param({"sharding": {"shard_bytes": "1MB"}}, source(), "", id="shard size"),
        pytest.param({}, source(), "digest", id="the user's code"),
    ],
)
def test_what_changes_the_shards_changes_their_place(changes, data, code):
    assert plan(wish(**changes), data, code).folder != plan(wish(), source()).folder


def test_the_order_of_options_does_not_matter():
    one = wish(transform={"kind": "tabular", "dtype": "uint8", "header": True}, world_sizes=[2, 1])
    two = wish(transform={"header": True, "kind": "tabular", "dtype": "uint8"}, world_sizes=[1, 2, 2])

    assert plan(one, source()).fingerprint == plan(two, source()).fingerprint


def test_the_container_reads_its_job():
    told = json.loads(plan(wish(transform={"kind": "copy"}), source("cat/1", "dog/2")).job_file())

    job = Job(**told)

    assert (job.classes, job.world_sizes, job.validation_fraction) == (["cat", "dog"], [1, 2], 0.1)


@pytest.mark.parametrize(
    ("transform", "classes"),
    [
        pytest.param({"kind": "tabular"}, None, id="tabular has labels in rows"),
        pytest.param({"kind": "tabular", "classes": ["x"]}, ["x"], id="tabular with names"),
        pytest.param({"kind": "copy"}, ["cat", "dog"], id="directories"),
        pytest.param({"kind": "copy", "class_from": "none"}, None, id="no classes"),
        pytest.param({"kind": "images", "classes": ["dog", "cat"]}, ["dog", "cat"], id="the user's order"),
    ],
)
def test_every_host_is_told_all_classes(transform, classes):
    """A host sees only its share, so it cannot number the classes itself."""
    assert plan(wish(transform=transform), source("cat/1", "dog/2")).classes == classes


@pytest.mark.parametrize(
    ("changes", "data", "found"),
    [
        pytest.param({"instance_count": 2}, source(), [], id="a file for each instance"),
        pytest.param(
            {"instance_count": 3}, source(), ["more-instances-than-files"], id="an instance without a file"
        ),
        pytest.param({}, source("a", size=900 * GIB), ["volume-too-large"], id="more than a disk holds"),
        pytest.param(
            {"transform": {"kind": "copy"}},
            source("x/a.jpg", "x/a.json"),
            ["two-samples-of-one-key"],
            id="pairs of files",
        ),
        pytest.param({"transform": {"kind": "copy"}}, source("x/a.jpg", "y/a.jpg"), [], id="two directories"),
        pytest.param({}, source("a.csv", "a.csv.gz"), [], id="tables are told apart by row"),
    ],
)
def test_what_the_data_do_not_allow_is_found_before_the_job(changes, data, found):
    assert rules(wish(**changes), data) == found


def test_the_disk_grows_with_the_share_of_an_instance():
    given = wish(transform={"kind": "copy"}, instance_count=2)

    assert volume_gb(given, 100 * GIB) == 200
    assert volume_gb(given, 1000) == 30
    assert volume_gb(wish(job={"volume_gb": 7}), 100 * GIB) == 7


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east-1", "683313688378.dkr.ecr.us-east-1.amazonaws.com"),
        ("cn-north-1", "450853457545.dkr.ecr.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_the_default_image_is_that_of_the_region(region, host):
    assert default_image(region) == f"{host}/sagemaker-scikit-learn:1.2-1-cpu-py3"


def test_a_region_without_an_image_wants_one_named():
    assert [problem.severity for problem in image_problems(wish(), "mars-1")] == [Severity.ERROR]
    assert image_problems(wish(image_uri="mine"), "mars-1") == []


def test_images_warn_that_pillow_may_be_missing():
    problems = image_problems(wish(transform={"kind": "images"}), "us-east-1")

    assert [problem.severity for problem in problems] == [Severity.WARNING]


def test_each_instance_gets_its_share_of_the_data_and_all_of_the_code():
    wanted = request(
        plan(wish(), source()), job_name="j", code_uri="s3://data/c/", region="us-east-1", tags={}
    )

    shares = {
        given["InputName"]: given["S3Input"]["S3DataDistributionType"] for given in wanted["ProcessingInputs"]
    }
    assert shares == {"data": "ShardedByS3Key", "code": "FullyReplicated"}


def test_options_of_the_job_reach_the_request():
    job = {
        "subnets": ["subnet-1"],
        "security_group_ids": ["sg-1"],
        "kms_key_id": "k",
        "environment": {"A": 1},
        "max_run_seconds": 60,
    }

    wanted = request(
        plan(wish(job=job), source()),
        job_name="j",
        code_uri="s3://data/c/",
        region="us-east-1",
        tags={"a": "b"},
    )

    assert wanted["NetworkConfig"] == {"VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}}
    assert wanted["ProcessingResources"]["ClusterConfig"]["VolumeKmsKeyId"] == "k"
    assert wanted["ProcessingOutputConfig"]["KmsKeyId"] == "k"
    assert (wanted["Environment"], wanted["StoppingCondition"]) == ({"A": "1"}, {"MaxRuntimeInSeconds": 60})
    assert wanted["Tags"] == [{"Key": "a", "Value": "b"}]
