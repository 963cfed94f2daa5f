"""A sweep reports, waits for the grace period, looks again, and removes what is an orphan still."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_smd.domain.identity import NAME_TAG, TaskIdentity
from airflow_smd.domain.sweep import Kind
from airflow_smd.errors import InvalidInput, SweepIncomplete, TaskTimedOut
from airflow_smd.operators.sweep import SweepOperator
from tests.fakes.sweep import FakeBilledThings, FakeRuns

HOUR = 3600.0
OVER, ALIVE = ("retrain", "over"), ("retrain", "alive")


def tags(run=OVER, task_id="train"):
    return TaskIdentity(dag_id=run[0], run_id=run[1], task_id=task_id).tags


@pytest.fixture
def things():
    return FakeBilledThings()


@pytest.fixture
def runs():
    return FakeRuns({OVER: "failed", ALIVE: "running"})


def task(things, **arguments):
    operator = SweepOperator(task_id="sweep", **{"deferrable": True, **arguments})
    operator.things = things
    return operator


def deferred(operator, runs):
    with pytest.raises(TaskDeferred) as deferral:
        operator.execute({"ti": runs})
    assert deferral.value.method_name == "finish"
    return deferral.value.trigger


def event(trigger, *, later_seconds):
    """Return what the trigger will say, as if what it waits for had been seen so much earlier."""
    seen = {thing_id: at - later_seconds for thing_id, at in trigger.first_seen.items()}
    return {**trigger.arguments(), "first_seen": seen}


def actions(report):
    return {each["id"]: each["action"] for each in report["things"]}


def test_a_sweep_only_reports_unless_told_otherwise(things, runs):
    job = things.put(Kind.TRAINING_JOB, tags())

    report = task(things, grace_seconds=0).execute({"ti": runs})

    assert report["dry_run"]
    assert (report["unneeded"], report["usd_per_day"], actions(report)) == (1, 24.0, {job: "remove"})
    assert things.removed == []


@pytest.mark.parametrize("kind", list(Kind))
def test_an_orphan_is_removed_after_the_grace_period(things, runs, kind):
    orphan = things.put(kind, tags())
    operator = task(things, dry_run=False)

    trigger = deferred(operator, runs)
    assert things.removed == []
    report = operator.finish({"ti": runs}, event(trigger, later_seconds=HOUR))

    assert things.removed == report["removed"] == [orphan]


def test_the_wait_ends_with_the_grace_period(things, runs):
    things.put(Kind.FILE_SYSTEM, tags())
    before = time.time()

    trigger = deferred(task(things, dry_run=False, grace_seconds="600"), runs)

    assert before + 600 <= trigger.until <= time.time() + 600


def test_without_grace_an_orphan_goes_at_once(things, runs):
    orphan = things.put(Kind.FILE_SYSTEM, tags())

    report = task(things, dry_run="False", grace_seconds=0).execute({"ti": runs})

    assert things.removed == report["removed"] == [orphan]


def test_what_a_living_run_needs_is_kept_and_nobody_waits(things, runs):
    job = things.put(Kind.TRAINING_JOB, tags(ALIVE))

    report = task(things, dry_run=False).execute({"ti": runs})

    assert actions(report) == {job: "keep"}
    assert report["unneeded"] == 0


def test_a_run_that_is_cleared_during_the_grace_period_keeps_its_things(things, runs):
    things.put(Kind.TRAINING_JOB, tags())
    operator = task(things, dry_run=False)
    trigger = deferred(operator, runs)

    runs.states[OVER] = "queued"
    operator.finish({"ti": runs}, event(trigger, later_seconds=HOUR))

    assert things.removed == []


def test_what_becomes_an_orphan_during_the_wait_is_left_to_the_next_sweep(things, runs):
    early = things.put(Kind.TRAINING_JOB, tags())
    late = things.put(Kind.FILE_SYSTEM, tags(ALIVE))
    operator = task(things, dry_run=False)
    trigger = deferred(operator, runs)

    runs.states[ALIVE] = "success"
    report = operator.finish({"ti": runs}, event(trigger, later_seconds=HOUR))

    assert actions(report) == {early: "remove", late: "wait"}
    assert things.removed == [early]


def test_what_is_long_due_does_not_wait_for_the_others(things, runs):
    due = things.put(Kind.FILE_SYSTEM, tags(ALIVE), created_at=0.0)
    things.put(Kind.TRAINING_JOB, tags(), created_at=time.time())
    operator = task(things, dry_run=False, time_to_live_seconds=24 * HOUR)

    trigger = deferred(operator, runs)

    assert things.removed == [due]
    assert due in operator.finish({"ti": runs}, event(trigger, later_seconds=HOUR))["removed"]


@pytest.mark.parametrize(
    "its_tags",
    [
        pytest.param({}, id="no tags"),
        pytest.param({"airflow:dag_id": "retrain", "airflow:run_id": "over"}, id="another package's tags"),
    ],
)
def test_what_is_not_tagged_by_us_is_never_touched(things, runs, its_tags):
    things.put(Kind.FILE_SYSTEM, its_tags)

    report = task(things, dry_run=False, grace_seconds=0, time_to_live_seconds=0).execute({"ti": runs})

    assert (report["found"], things.removed) == (0, [])


@pytest.mark.parametrize(
    "its_tags",
    [
        pytest.param(tags(("retrain", "deleted")), id="of a run that was deleted"),
        pytest.param({NAME_TAG: "retrain-train-0123456789ab-g1"}, id="that tells no run"),
        pytest.param(
            TaskIdentity(dag_id="retrain", run_id="over", task_id="t", deployment="staging").tags,
            id="of another deployment",
        ),
    ],
)
def test_what_may_be_anothers_is_told_about_and_left(things, runs, its_tags):
    thing_id = things.put(Kind.FILE_SYSTEM, its_tags)

    report = task(things, dry_run=False, grace_seconds=0, time_to_live_seconds=0).execute({"ti": runs})

    assert actions(report) == {thing_id: "report"}
    assert things.removed == []


@pytest.mark.parametrize(
    ("deployment", "removed"),
    [pytest.param("prod", 1, id="of this deployment"), pytest.param("staging", 0, id="of another")],
)
def test_the_deployment_of_this_airflow_decides_what_is_ours(things, runs, monkeypatch, deployment, removed):
    monkeypatch.setenv("AIRFLOW__SMD__DEPLOYMENT", "prod")
    who = TaskIdentity(dag_id="retrain", run_id="deleted", task_id="t", deployment=deployment)
    things.put(Kind.FILE_SYSTEM, who.tags)

    task(things, dry_run=False, grace_seconds=0, time_to_live_seconds=0).execute({"ti": runs})

    assert len(things.removed) == removed


def test_what_cannot_be_listed_does_not_keep_the_rest(runs):
    things = FakeBilledThings(unreadable=frozenset({Kind.BUILD}))
    orphan = things.put(Kind.FILE_SYSTEM, tags())

    with pytest.raises(SweepIncomplete, match="cannot list every build") as told:
        task(things, dry_run=False, grace_seconds=0).execute({"ti": runs})

    assert things.removed == [orphan]
    assert told.value.worth_a_retry


def test_what_cannot_be_removed_does_not_keep_the_rest(things, runs):
    stuck, other = things.put(Kind.FILE_SYSTEM, tags()), things.put(Kind.TRAINING_JOB, tags())
    things.stuck.add(stuck)

    with pytest.raises(SweepIncomplete, match=f"cannot remove file system {stuck}"):
        task(things, dry_run=False, grace_seconds=0).execute({"ti": runs})

    assert things.removed == [other]


def test_a_timeout_during_the_grace_period_removes_nothing(things, runs):
    things.put(Kind.FILE_SYSTEM, tags())
    operator = task(things, dry_run=False, execution_timeout=timedelta(seconds=60))
    trigger = deferred(operator, runs)

    with pytest.raises(TaskTimedOut):
        operator.finish({"ti": runs}, {"timeout": True} | trigger.arguments())

    assert things.removed == []


def test_a_run_is_asked_for_once_however_much_it_left(things, runs):
    for kind in Kind:
        things.put(kind, tags())

    task(things).execute({"ti": runs})

    assert runs.asked == [OVER]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"dry_run": "perhaps"}, "dry_run"),
        ({"grace_seconds": "soon"}, "grace_seconds"),
        ({"grace_seconds": True}, "grace_seconds"),
        ({"time_to_live_seconds": float("inf")}, "time_to_live_seconds"),
    ],
)
def test_a_wrong_value_is_refused_after_rendering_too(things, runs, arguments, field):
    operator = task(things)
    operator.only_report = arguments.get("dry_run", False)
    operator.grace_seconds = arguments.get("grace_seconds", 0)
    operator.time_to_live_seconds = arguments.get("time_to_live_seconds")
    things.put(Kind.FILE_SYSTEM, tags())

    with pytest.raises(InvalidInput) as refused:
        operator.execute({"ti": runs})

    assert [problem.field for problem in refused.value.problems] == [field]
    assert things.removed == []


@pytest.mark.parametrize("left_out", ["None", "", None], ids=["as text", "empty", "as a value"])
def test_no_time_to_live_may_come_from_a_template(things, runs, left_out):
    operator = task(things, time_to_live_seconds=left_out)

    assert operator.execute({"ti": runs})["found"] == 0


def test_airflows_own_dry_run_still_is_a_method():
    assert callable(SweepOperator(task_id="sweep").dry_run)
