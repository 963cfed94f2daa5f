"""Names and tags tell who started a thing, and the tags tell it back."""

import pytest

from airflow_smd.domain.identity import NAME_TAG, TaskIdentity, may_be_ours

PLAIN = TaskIdentity(
    dag_id="retrain",
    run_id="scheduled__2026-01-01T00:00:00+00:00",
    task_id="train",
    map_index=3,
    generation=2,
)
STAGING = TaskIdentity(dag_id="retrain", run_id="r", task_id="train", deployment="staging")


def test_a_deployment_with_a_name_is_in_the_tags():
    assert STAGING.tags["airflow-smd:deployment"] == "staging"


def test_a_deployment_without_a_name_is_not_in_the_tags():
    assert "airflow-smd:deployment" not in PLAIN.tags


@pytest.mark.parametrize("who", [PLAIN, STAGING], ids=["no deployment", "a named deployment"])
def test_tags_lead_back_to_the_task(who):
    assert TaskIdentity.from_tags(who.tags, who.deployment) == who


@pytest.mark.parametrize(
    ("tags", "deployment"),
    [
        pytest.param(STAGING.tags, "production", id="of another deployment"),
        pytest.param(STAGING.tags, "", id="of another deployment, ours has no name"),
        pytest.param({**PLAIN.tags, "airflow:run_id": "another"}, "", id="changed by somebody"),
        pytest.param(
            TaskIdentity(dag_id="d", run_id="a~b", task_id="t").tags, "", id="a character was replaced"
        ),
        pytest.param({NAME_TAG: PLAIN.base_name}, "", id="only the name"),
        pytest.param({**PLAIN.tags, "airflow:generation": "two"}, "", id="no number"),
        pytest.param({}, "", id="none"),
    ],
)
def test_tags_that_do_not_tell_lead_to_nobody(tags, deployment):
    assert TaskIdentity.from_tags(tags, deployment) is None


@pytest.mark.parametrize("who", [PLAIN, STAGING], ids=["no deployment", "a named deployment"])
def test_our_names_look_like_ours(who):
    assert may_be_ours(who.attempt_name(12))


@pytest.mark.parametrize(
    "name", ["resnet-2026-01-01", "pytorch-training-g1-a1", PLAIN.base_name + "-a1-copy"]
)
def test_other_names_do_not(name):
    assert not may_be_ours(name)
