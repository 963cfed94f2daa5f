"""What is removed, what is kept and what is only told about, each with its reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_smd.domain.cost import CostLine
from airflow_smd.domain.identity import DEPLOYMENT_TAG, NAME_TAG, TaskIdentity
from airflow_smd.domain.sweep import (
    TIME_TO_LIVE_TAG,
    Action,
    Kind,
    Policy,
    RunState,
    Thing,
    decide,
    report,
    runs_to_ask_for,
)

HOUR = 3600.0
DAY = 24 * HOUR
NOW = 100 * DAY
NAMED = TaskIdentity(dag_id="retrain", run_id="r1", task_id="train", deployment="prod")
NAMELESS = TaskIdentity(dag_id="retrain", run_id="r1", task_id="train")
RUN = ("retrain", "r1")


def thing(tags, age_seconds=2 * HOUR, usd=24.0, thing_id="x"):
    return Thing(
        kind=Kind.TRAINING_JOB,
        thing_id=thing_id,
        tags=tags,
        created_at=NOW - age_seconds,
        per_day=CostLine(what="training job", usd=usd, basis="1 x this"),
    )


def policy(deployment="", **changes):
    return Policy(deployment=deployment, **{"grace_seconds": HOUR, **changes})


def decision(found, runs, rules, first_seen=None):
    (made,) = decide([found], runs, rules, now=NOW, first_seen=first_seen or {})
    return made


@pytest.mark.parametrize(
    ("state", "rules", "first_seen", "action", "reason"),
    [
        pytest.param("alive", {}, None, "keep", "its DAG run is not over", id="its run is alive"),
        pytest.param(
            "over", {}, None, "wait", "3,600 s of grace are left", id="over, seen for the first time"
        ),
        pytest.param("over", {}, NOW - HOUR + 1, "wait", "1 s of grace are left", id="over, within grace"),
        pytest.param("over", {}, NOW - HOUR, "remove", "its DAG run is over", id="over, grace has passed"),
        pytest.param(
            "over", {"grace_seconds": 0}, None, "remove", "its DAG run is over", id="over, no grace"
        ),
        pytest.param("alive", {}, NOW - HOUR, "keep", "not over", id="cleared since it was seen"),
        pytest.param(
            "unknown", {}, NOW - DAY, "report", "no such run", id="a run that Airflow does not know"
        ),
        pytest.param(
            "alive", {"time_to_live_seconds": 3 * HOUR}, None, "keep", "not over", id="alive and young enough"
        ),
        pytest.param(
            "alive",
            {"time_to_live_seconds": 1.5 * HOUR},
            None,
            "wait",
            "1,800 s of grace",
            id="alive, just too old",
        ),
        pytest.param(
            "alive",
            {"time_to_live_seconds": HOUR},
            None,
            "remove",
            "3,600 s, which are over",
            id="alive, long too old",
        ),
        pytest.param(
            "over",
            {"time_to_live_seconds": HOUR},
            None,
            "remove",
            "and its DAG run is over",
            id="over and too old",
        ),
    ],
)
@pytest.mark.parametrize("owner", [NAMED, NAMELESS], ids=["a named deployment", "no deployment"])
def test_what_becomes_of_a_thing_of_ours(owner, state, rules, first_seen, action, reason):
    seen = {} if first_seen is None else {"x": first_seen}

    made = decision(thing(owner.tags), {RUN: RunState(state)}, policy(owner.deployment, **rules), seen)

    assert made.action == action
    assert reason in made.reason


@pytest.mark.parametrize(
    ("owner", "action"),
    [
        pytest.param(NAMED, "remove", id="its tag says that it is ours"),
        pytest.param(NAMELESS, "report", id="it may be another Airflow's"),
    ],
)
def test_the_time_to_live_of_an_unknown_run_counts_for_what_is_surely_ours(owner, action):
    made = decision(thing(owner.tags), {}, policy(owner.deployment, time_to_live_seconds=HOUR))

    assert made.action == action


@pytest.mark.parametrize(
    ("tags", "ours"),
    [
        pytest.param(NAMED.tags, "staging", id="of another deployment"),
        pytest.param(NAMED.tags, "", id="ours has no name"),
        pytest.param(NAMELESS.tags, "prod", id="theirs has no name"),
    ],
)
def test_another_deployments_thing_is_only_told_about(tags, ours):
    rules = policy(ours, grace_seconds=0, time_to_live_seconds=0)

    made = decision(thing(tags), {RUN: RunState.OVER}, rules, {"x": 0.0})

    assert made.action is Action.REPORT
    assert "deployment" in made.reason


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param({NAME_TAG: NAMELESS.base_name}, id="no run in the tags"),
        pytest.param({**NAMELESS.tags, "airflow:run_id": "r2"}, id="a run that the name does not know"),
    ],
)
def test_tags_that_do_not_prove_their_run_remove_nothing(tags):
    runs = {RUN: RunState.OVER, ("retrain", "r2"): RunState.OVER}

    assert decision(thing(tags), runs, policy(grace_seconds=0)).action is Action.REPORT


def test_a_run_whose_id_aws_does_not_take_is_not_mistaken_for_one_that_looks_like_it():
    strange = TaskIdentity(dag_id="retrain", run_id="a~b", task_id="train")

    made = decision(thing(strange.tags), {("retrain", "a_b"): RunState.OVER}, policy(grace_seconds=0))

    assert made.action is Action.REPORT


@pytest.mark.parametrize(
    ("seconds", "action"),
    [
        pytest.param(str(DAY), "keep", id="not yet passed"),
        pytest.param(str(HOUR / 2), "remove", id="passed, and grace too"),
        pytest.param("for ever", "remove", id="not a number: as if it were not there"),
        pytest.param("nan", "remove", id="no number at all: as if it were not there"),
        pytest.param("-1", "remove", id="negative: as if it were not there"),
    ],
)
def test_a_tag_lets_a_thing_outlive_its_run_for_a_time(seconds, action):
    kept = thing({**NAMELESS.tags, TIME_TO_LIVE_TAG: seconds})

    assert decision(kept, {RUN: RunState.OVER}, policy(), {"x": NOW - HOUR}).action == action


def test_a_things_own_time_to_live_counts_more_than_the_sweeps():
    kept = thing({**NAMELESS.tags, TIME_TO_LIVE_TAG: str(DAY)})

    made = decision(kept, {RUN: RunState.ALIVE}, policy(time_to_live_seconds=1))

    assert made.action is Action.KEEP


def test_each_run_of_ours_is_asked_for_once():
    other = TaskIdentity(dag_id="retrain", run_id="r0", task_id="create")
    things = [thing(NAMELESS.tags), thing(NAMELESS.tags), thing(other.tags), thing(NAMED.tags), thing({})]

    assert runs_to_ask_for(things, "") == [("retrain", "r0"), RUN]


def test_a_deployments_name_that_aws_does_not_take_is_still_ours():
    ours = TaskIdentity(dag_id="retrain", run_id="r1", task_id="train", deployment="prod#1")
    assert ours.tags[DEPLOYMENT_TAG] == "prod_1"

    made = decision(thing(ours.tags), {RUN: RunState.OVER}, policy("prod#1", grace_seconds=0))

    assert made.action is Action.REMOVE


def test_a_line_tells_what_it_is_what_it_costs_whose_it_was_and_why():
    made = decision(thing(NAMELESS.tags), {RUN: RunState.OVER}, policy(grace_seconds=0))

    assert str(made) == "remove: training job x, $24.00 a day, of retrain / r1 / train: its DAG run is over"


def test_the_report_adds_up_what_is_unneeded_and_names_what_has_no_price():
    things = [
        thing(NAMELESS.tags, thing_id="priced"),
        thing(NAMELESS.tags, thing_id="unpriced", usd=None),
        thing({NAME_TAG: "stranger"}, thing_id="reported"),
        thing({**NAMELESS.tags, TIME_TO_LIVE_TAG: str(DAY)}, thing_id="kept", usd=1000.0),
    ]
    made = decide(things, {RUN: RunState.OVER}, policy(), now=NOW, first_seen={})

    told = report(made, removed={"priced": "stopping"}, dry_run=False)

    assert (told["found"], told["unneeded"], told["usd_per_day"]) == (4, 3, 48.0)
    assert told["no_price_for"] == ["training job"]
    assert told["removed"] == ["priced"]
    assert {each["id"]: each["answer"] for each in told["things"]}["priced"] == "stopping"
    assert json.loads(json.dumps(told)) == told


NAMES = st.sampled_from(["", "prod", "staging"])
SECONDS = st.integers(0, int(10 * DAY))


@given(
    run_id=st.sampled_from(["r1", "r2", "a~b", "a_b"]),
    theirs=NAMES,
    ours=NAMES,
    meddled=st.dictionaries(
        st.sampled_from(["airflow:run_id", "airflow:dag_id", NAME_TAG, DEPLOYMENT_TAG, TIME_TO_LIVE_TAG]),
        st.sampled_from(["r1", "a_b", "prod", "0", "nan"]),
    ),
    states=st.dictionaries(st.sampled_from(["r1", "r2", "a~b", "a_b"]), st.sampled_from(list(RunState))),
    age_seconds=SECONDS,
    grace_seconds=SECONDS,
    limit=st.none() | SECONDS,
)
def test_nothing_goes_without_proof(run_id, theirs, ours, meddled, states, age_seconds, grace_seconds, limit):
    """Whatever the tags say, what is removed is of our deployment, and its run is over or its time is up."""
    owner = TaskIdentity(dag_id="retrain", run_id=run_id, task_id="train", deployment=theirs)
    found = thing({**owner.tags, **meddled}, age_seconds)
    runs = {("retrain", run): state for run, state in states.items()}
    rules = policy(ours, grace_seconds=grace_seconds, time_to_live_seconds=limit)

    made = decision(found, runs, rules, {"x": NOW - 5 * DAY})

    if made.action is Action.REMOVE:
        assert found.tags.get(DEPLOYMENT_TAG, "") == ours
        known = found.owner(ours)
        state = runs.get((known.dag_id, known.run_id), RunState.UNKNOWN) if known else RunState.UNKNOWN
        own = found.time_to_live_seconds()
        lives = limit if own is None else own
        too_old = lives is not None and age_seconds >= lives + grace_seconds
        assert too_old or (state is RunState.OVER and grace_seconds <= 5 * DAY)
        assert state is not RunState.UNKNOWN or ours
