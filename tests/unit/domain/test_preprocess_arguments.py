import pytest

from airflow_smd.domain.preprocess_arguments import code_problems, read_wish, refuse_fixed, wish_of
from airflow_smd.errors import InvalidInput

GOOD = {
    "source_uri": "s3://data/raw",
    "output_uri": "s3://data/shards",
    "transform": {"kind": "tabular"},
    "world_sizes": [8, 1, 2, 8],
    "role": "arn:aws:iam::123456789012:role/service-role/Worker",
    "instance_type": "ml.m5.xlarge",
    "instance_count": 1,
    "image_uri": None,
    "code_dir": None,
    "sharding": None,
    "job": None,
}


def fields(**changes):
    return {problem.field for problem in read_wish({**GOOD, **changes})[1]}


def test_good_arguments_have_no_problem():
    wish = wish_of(GOOD)

    assert (wish.source.uri, wish.sharding.world_sizes) == ("s3://data/raw/", [1, 2, 8])


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"world_sizes": "1,2,8"}, id="numbers with commas"),
        pytest.param({"world_sizes": "[1, 2, 8]"}, id="JSON"),
        pytest.param({"world_sizes": ["1", "2", "8"]}, id="strings in a list"),
        pytest.param({"instance_count": "1"}, id="count as text"),
        pytest.param({"transform": '{"kind": "tabular"}'}, id="transform as JSON"),
        pytest.param({"image_uri": "", "sharding": {}, "job": {}}, id="empty options"),
    ],
)
def test_text_from_templates_means_the_same(changes):
    assert wish_of({**GOOD, **changes}) == wish_of(GOOD)


def test_options_are_read():
    wish = wish_of(
        {
            **GOOD,
            "sharding": {"validation_fraction": "0.2", "seed": 3, "shard_bytes": "256MB"},
            "job": {"volume_gb": 50, "subnets": ["subnet-1"], "security_group_ids": ["sg-1"]},
        }
    )

    assert (wish.sharding.validation_fraction, wish.sharding.shard_bytes) == (0.2, 256_000_000)
    assert (wish.machines.volume_gb, wish.machines.subnets) == (50, ["subnet-1"])


@pytest.mark.parametrize(
    "role",
    [
        "arn:aws:iam::123456789012:role/R",
        "arn:aws-cn:iam::123456789012:role/a/R",
        "arn:aws-us-gov:iam::123456789012:role/R",
    ],
)
def test_roles_of_every_partition_are_taken(role):
    assert fields(role=role) == set()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"source_uri": "raw"}, "source_uri", id="source is no URI"),
        pytest.param({"output_uri": None}, "output_uri", id="no output"),
        pytest.param({"output_uri": "s3://data/raw/shards"}, "output_uri", id="output inside the source"),
        pytest.param({"role": "Worker"}, "role", id="role is a name"),
        pytest.param({"role": "arn:aws:iam::12345:role/R"}, "role", id="account of five digits"),
        pytest.param({"role": "arn:aws:iam::123456789012:user/R"}, "role", id="a user"),
        pytest.param({"instance_type": "m5.xlarge"}, "instance_type", id="an EC2 type"),
        pytest.param({"instance_type": "ml.m5"}, "instance_type", id="a family"),
        pytest.param({"instance_count": 0}, "instance_count", id="zero instances"),
        pytest.param({"instance_count": 101}, "instance_count", id="more than SageMaker allows"),
        pytest.param({"instance_count": True}, "instance_count", id="a truth value"),
        pytest.param({"instance_count": 1.5}, "instance_count", id="one and a half"),
        pytest.param({"world_sizes": []}, "world_sizes", id="no world size"),
        pytest.param({"world_sizes": [2, 0]}, "world_sizes[1]", id="a world of nobody"),
        pytest.param({"world_sizes": ["two"]}, "world_sizes[0]", id="a word"),
        pytest.param({"world_sizes": [101, 103]}, "world_sizes", id="a multiple that is too large"),
        pytest.param({"sharding": {"sed": 1}}, "sharding.sed", id="misspelt option"),
        pytest.param(
            {"sharding": {"validation_fraction": 1}}, "sharding.validation_fraction", id="all validation"
        ),
        pytest.param({"sharding": {"shard_bytes": "big"}}, "sharding.shard_bytes", id="no size"),
        pytest.param({"sharding": [1]}, "sharding", id="list for mapping"),
        pytest.param({"job": {"volume": 1}}, "job.volume", id="misspelt job option"),
        pytest.param({"job": {"volume_gb": 20_000}}, "job.volume_gb", id="volume too large"),
        pytest.param({"job": {"max_run_seconds": 777_601}}, "job.max_run_seconds", id="runs too long"),
        pytest.param({"job": {"subnets": ["subnet-1"]}}, "job.subnets", id="half of a VPC"),
        pytest.param({"transform": None}, "transform", id="no transform"),
        pytest.param({"transform": "tabular"}, "transform", id="transform is a word"),
        pytest.param({"transform": {}}, "transform.kind", id="no kind"),
    ],
)
def test_each_mistake_names_its_field(changes, field):
    assert fields(**changes) == {field}


def test_all_mistakes_are_told_at_once():
    assert fields(role="me", instance_count=0, world_sizes=[0], transform={"kind": "x"}) == {
        "role",
        "instance_count",
        "world_sizes[0]",
        "transform.kind",
    }


@pytest.mark.parametrize("field", ["source_uri", "world_sizes", "transform", "role", "instance_count", "job"])
def test_a_template_is_judged_only_when_rendered(field):
    refuse_fixed({**GOOD, field: "{{ params.x }}"})

    with pytest.raises(InvalidInput):
        wish_of({**GOOD, field: "{{ params.x }}"})


def test_a_missing_code_directory_is_named():
    assert [problem.field for problem in code_problems("/nowhere", is_directory=False)] == ["code_dir"]
    assert code_problems(None, is_directory=True) == []
