"""One file system for a run: sized, made once, found again, never left behind."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import DAG

from airflow_smd.errors import (
    FileSystemBroken,
    FileSystemLate,
    FileSystemLimitReached,
    FileSystemRefused,
    InvalidInput,
)
from airflow_smd.hooks.lustre import LustreHook
from airflow_smd.operators.lustre import LustreCreateOperator, LustreDeleteOperator
from tests.fakes.lustre import (
    BUCKET,
    CLOSED,
    ONLY_988,
    OPEN,
    OTHER_SUBNET,
    SUBNET,
    Breaking,
    FakeConnection,
    FakeEc2,
    Killed,
    Lost,
    refuse,
)

URI = f"s3://{BUCKET}/digits/"
DATASET = {"uri": URI, "bytes": "100GB", "files": 1000}
ORDER: dict[str, Any] = {
    "dataset": DATASET,
    "nodes": 2,
    "subnet_id": SUBNET,
    "security_group_ids": [OPEN],
    "plan": {"deployment_type": "SCRATCH_2", "storage_capacity_gib": 1200},
}
SIZED: dict[str, Any] = {
    **{key: value for key, value in ORDER.items() if key != "plan"},
    "nodes": 4,
    "instance_type": "ml.p4d.24xlarge",
    "epoch_seconds": 30,
    "epochs": 10,
}
RETRIES = 2


@pytest.fixture
def aws() -> FakeConnection:
    return FakeConnection()


def context(*, try_number: int = 1, clears: int = 0, run_id: str = "run-1", map_index: int = -1) -> Any:
    ti = SimpleNamespace(
        dag_id="retrain",
        run_id=run_id,
        task_id="create",
        map_index=map_index,
        max_tries=RETRIES + clears,
        try_number=try_number,
    )
    return {"ti": ti}


def create_task(aws: FakeConnection, **arguments: Any) -> LustreCreateOperator:
    task = LustreCreateOperator(
        task_id="create", retries=RETRIES, deferrable=True, poll_seconds=0.0, **{**ORDER, **arguments}
    )
    task.hook = LustreHook(aws)  # type: ignore[arg-type]
    task.connection = aws  # type: ignore[assignment]
    return task


def delete_task(aws: FakeConnection, file_system: Any = None, **arguments: Any) -> LustreDeleteOperator:
    arguments = {"create_task_id": "create", **arguments}
    task = LustreDeleteOperator(
        task_id="delete", retries=RETRIES, deferrable=True, file_system=file_system, **arguments
    )
    task.hook = LustreHook(aws)  # type: ignore[arg-type]
    task.connection = aws  # type: ignore[assignment]
    return task


def run(task: Any, aws: FakeConnection, where: Any) -> Any:
    """Run a task as worker and triggerer do, letting FSx finish whatever it is waited for."""
    step, arguments = task.execute, ()
    while True:
        try:
            return step(where, *arguments)
        except TaskDeferred as deferred:
            trigger = deferred.trigger
            trigger.file_systems = LustreHook(aws).file_systems  # type: ignore[arg-type]
            step, arguments = getattr(task, deferred.method_name), (_event(trigger, aws),)


def _event(trigger: Any, aws: FakeConnection) -> dict[str, Any]:
    for _ in range(10):
        try:
            event: dict[str, Any] | None = trigger.look()
        except Lost:  # as WaitTrigger.run: an error while looking never ends the wait
            event = None
        if event is not None:
            return event
        aws.fsx.settle()
    raise AssertionError(f"{type(trigger).__name__} does not fire")


# -- create ------------------------------------------------------------------------------------------------


def test_the_result_is_all_that_a_training_job_needs(aws: FakeConnection) -> None:
    result = run(create_task(aws), aws, context())

    [file_system_id] = aws.fsx.file_systems
    assert result["file_system_id"] == file_system_id
    assert result["vpc_config"] == {"Subnets": [SUBNET], "SecurityGroupIds": [OPEN]}
    assert result["data_source"] == {
        "FileSystemDataSource": {
            "FileSystemId": file_system_id,
            "FileSystemType": "FSxLustre",
            "FileSystemAccessMode": "ro",
            "DirectoryPath": "/abcd1234/dataset",
        }
    }
    assert result["plan"]["storage_capacity_gib"] == 1200
    assert result["plan"]["why"]


def test_the_data_set_is_linked_with_its_names_imported(aws: FakeConnection) -> None:
    run(create_task(aws), aws, context())

    [association] = aws.fsx.associations.values()
    assert (association["FileSystemPath"], association["DataRepositoryPath"]) == ("/dataset", URI)
    assert association["BatchImportMetaDataOnCreate"] is True


def test_the_oldest_type_is_linked_by_its_import_path_and_keeps_the_whole_keys(aws: FakeConnection) -> None:
    plan = {"deployment_type": "SCRATCH_1", "storage_capacity_gib": 3600}

    result = run(create_task(aws, plan=plan), aws, context())

    assert not aws.fsx.associations
    assert result["data_source"]["FileSystemDataSource"]["DirectoryPath"] == "/fsx/digits"


def test_the_seeds_example_is_sized_from_the_manifest(aws: FakeConnection) -> None:
    """100 GB in 30 s on 4 nodes needs 3.33 GB/s by the plain rule, and less with the nodes' caches."""
    manifest = {
        "uri": URI,
        "splits": {"train": {"shards": [{"bytes": 50_000_000, "samples": 1000}] * 2000, "bytes": 10**11}},
    }

    result = run(create_task(aws, **{**SIZED, "plan": None, "dataset": manifest}), aws, context())

    [made] = aws.fsx.file_systems.values()
    assert made["StorageCapacity"] == result["plan"]["storage_capacity_gib"] >= 1200
    assert result["plan"]["required_mbps"] == pytest.approx(3333, rel=0.01)
    assert made["FileSystemTypeVersion"] == "2.15"


SMALL = {**SIZED, "plan": None, "dataset": {"uri": URI, "bytes": "1GB", "files": 10}}


def test_a_small_data_set_is_read_from_s3_when_skipping_is_allowed(aws: FakeConnection) -> None:
    result = run(create_task(aws, **SMALL, when_not_worth_it="skip"), aws, context())

    assert result["file_system_id"] is None
    assert result["vpc_config"] is None
    assert result["input_mode"] == "File"
    assert result["data_source"]["S3DataSource"]["S3Uri"] == URI
    assert result["plan"]["why"]
    assert not aws.fsx.file_systems


def test_a_small_data_set_gets_its_file_system_when_one_is_asked_for(aws: FakeConnection) -> None:
    result = run(create_task(aws, **SMALL), aws, context())

    assert result["file_system_id"] in aws.fsx.file_systems
    assert "would do without a file system" in result["plan"]["why"][-1]


def test_arguments_may_be_texts_as_jinja_renders_them(aws: FakeConnection) -> None:
    texts = {"nodes": "4", "epochs": "3", "epoch_seconds": "30.0", "security_group_ids": f"['{OPEN}']"}

    result = run(create_task(aws, **{**SIZED, "plan": None, **texts}), aws, context())

    assert result["vpc_config"]["SecurityGroupIds"] == [OPEN]


def test_a_retry_follows_the_file_system_that_is_being_created(aws: FakeConnection) -> None:
    with pytest.raises(TaskDeferred):
        create_task(aws).execute(context())

    result = run(create_task(aws), aws, context(try_number=2))

    assert list(aws.fsx.file_systems) == [result["file_system_id"]]


def test_a_retry_before_fsx_lists_the_file_system_finds_it_by_its_token(aws: FakeConnection) -> None:
    aws.fsx.lag = 2
    with pytest.raises(TaskDeferred):
        create_task(aws).execute(context())

    run(create_task(aws), aws, context(try_number=2))

    assert len(aws.fsx.file_systems) == 1


def test_a_retry_after_fsx_forgot_the_token_finds_the_file_system_by_its_tag(aws: FakeConnection) -> None:
    with pytest.raises(TaskDeferred):
        create_task(aws).execute(context())
    aws.fsx.forget_tokens()

    run(create_task(aws), aws, context(try_number=2))

    assert len(aws.fsx.file_systems) == 1


def test_the_file_system_is_found_on_a_later_page(aws: FakeConnection) -> None:
    aws.fsx.page_size = 1
    for run_id in ("run-0", "run-1", "run-2"):
        with pytest.raises(TaskDeferred):
            create_task(aws).execute(context(run_id=run_id))
    aws.fsx.forget_tokens()

    run(create_task(aws), aws, context(run_id="run-2", try_number=2))

    assert len(aws.fsx.file_systems) == 3


def test_a_clear_makes_another_and_the_teardown_takes_both(aws: FakeConnection) -> None:
    run(create_task(aws), aws, context())
    result = run(create_task(aws), aws, context(clears=RETRIES + 1))
    assert len(aws.fsx.file_systems) == 2

    run(delete_task(aws, result), aws, context())

    assert not aws.fsx.file_systems


def test_a_second_file_system_of_ours_goes(aws: FakeConnection) -> None:
    """Two schedulers raced, and FSx had forgotten the token between them."""
    run(create_task(aws), aws, context())
    [first] = aws.fsx.file_systems
    twin = {**aws.fsx.file_systems[first], "FileSystemId": "fs-0fffffffffffffff0", "Lifecycle": "CREATING"}
    aws.fsx.file_systems[twin["FileSystemId"]] = twin

    result = run(create_task(aws), aws, context(try_number=2))

    assert aws.fsx.alive == [result["file_system_id"]]


def test_a_file_system_that_failed_is_deleted_and_the_retry_makes_another(aws: FakeConnection) -> None:
    task = create_task(aws)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context())
    [failed] = aws.fsx.file_systems.values()
    failed |= {"Lifecycle": "FAILED", "FailureDetails": {"Message": "no capacity"}}
    deferred.value.trigger.file_systems = task.hook.file_systems

    with pytest.raises(FileSystemBroken, match=r"FAILED: no capacity"):
        task.link(context(), deferred.value.trigger.look())
    result = run(create_task(aws), aws, context(try_number=2))

    assert aws.fsx.alive == [result["file_system_id"]]
    assert failed["Lifecycle"] == "DELETING"


def test_an_import_path_that_could_not_be_read_is_no_data_set(aws: FakeConnection) -> None:
    """The file system itself is available, and empty."""
    task = create_task(aws, plan={"deployment_type": "SCRATCH_1", "storage_capacity_gib": 3600})
    with pytest.raises(TaskDeferred):
        task.execute(context())
    [made] = aws.fsx.file_systems.values()
    repository = made["LustreConfiguration"]["DataRepositoryConfiguration"]
    repository |= {"Lifecycle": "MISCONFIGURED", "FailureDetails": {"Message": "key denied"}}
    event = {"file_system_id": made["FileSystemId"], "ready": True}

    with pytest.raises(FileSystemBroken, match="MISCONFIGURED: key denied"):
        task.link(context(), event)

    assert not aws.fsx.alive


def test_the_last_try_leaves_nothing_behind(aws: FakeConnection) -> None:
    """Airflow skips the teardown of a setup that failed, so nobody else would delete it."""
    task = create_task(aws)
    with pytest.raises(TaskDeferred):
        task.execute(context(try_number=RETRIES + 1))

    with pytest.raises(FileSystemLate):
        task.link(context(try_number=RETRIES + 1), {"timeout": True})

    assert not aws.fsx.alive


def test_a_try_that_another_follows_leaves_the_file_system_to_it(aws: FakeConnection) -> None:
    task = create_task(aws)
    with pytest.raises(TaskDeferred):
        task.execute(context())

    with pytest.raises(FileSystemLate):
        task.link(context(), {"timeout": True})

    assert len(aws.fsx.alive) == 1


def test_killing_the_task_deletes_its_file_system(aws: FakeConnection) -> None:
    task = create_task(aws)
    with pytest.raises(TaskDeferred):
        task.execute(context())

    task.on_kill()

    assert not aws.fsx.alive


def test_killing_the_deferred_task_deletes_its_file_system(aws: FakeConnection) -> None:
    task = create_task(aws)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context())
    deferred.value.trigger.file_systems = task.hook.file_systems

    deferred.value.trigger.stop()

    assert not aws.fsx.alive


def test_a_refusal_of_fsx_is_final_and_names_what_fsx_said(aws: FakeConnection) -> None:
    """Without the right to look at the network FSx itself is who refuses."""
    aws.ec2.denied = True

    with pytest.raises(FileSystemRefused, match="port 988") as refused:
        run(create_task(aws, security_group_ids=[CLOSED]), aws, context())

    assert refused.value.code == "InvalidNetworkSettings"
    assert not refused.value.worth_a_retry


def test_a_quota_that_is_used_up_is_an_error_of_its_own(aws: FakeConnection) -> None:
    def full(**_: Any) -> Any:
        raise refuse("CreateFileSystem", "ServiceLimitExceeded", "Too much.", Limit="TOTAL_STORAGE")

    aws.fsx.create_file_system = full  # type: ignore[method-assign]

    with pytest.raises(FileSystemLimitReached, match="Service Quotas") as reached:
        run(create_task(aws), aws, context())

    assert reached.value.limit == "TOTAL_STORAGE"


# -- refused before anything is created --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "rules"),
    [
        pytest.param({"subnet_id": "subnet-0123456789abcdef9"}, {"subnet-missing"}, id="no such subnet"),
        pytest.param({"subnet_id": OTHER_SUBNET}, {"subnet-full"}, id="no free addresses"),
        pytest.param(
            {"security_group_ids": ["sg-0123456789abcdef9"]}, {"security-group-missing"}, id="no such group"
        ),
        pytest.param({"security_group_ids": [CLOSED]}, {"lustre-ports-closed"}, id="all ports closed"),
        pytest.param({"security_group_ids": [ONLY_988]}, {"lustre-ports-closed"}, id="only 988 open"),
        pytest.param(
            {"dataset": {"uri": "s3://no-such-bucket/a/", "bytes": 1}},
            {"bucket-missing"},
            id="no such bucket",
        ),
        pytest.param(
            {"dataset": {"uri": "s3://far-away/a/", "bytes": 1}}, {"bucket-elsewhere"}, id="bucket elsewhere"
        ),
        pytest.param(
            {"dataset": {"uri": f"s3://{BUCKET}/none/", "bytes": 1}}, {"dataset-empty"}, id="nothing there"
        ),
        pytest.param(
            {"plan": {"deployment_type": "SCRATCH_2", "storage_capacity_gib": 3600}},
            {"capacity-refused"},
            id="a size of another type",
        ),
        pytest.param(
            {
                "plan": {
                    "deployment_type": "PERSISTENT_2",
                    "storage_type": "INTELLIGENT_TIERING",
                    "throughput_capacity_mbps": 4000,
                    "read_cache_mode": "NO_CACHE",
                    "metadata_mode": "USER_PROVISIONED",
                    "metadata_iops": 6000,
                }
            },
            {"no-link-to-s3"},
            id="a type that S3 cannot be linked to",
        ),
        pytest.param({"plan": {"size": 1}}, {"plan-unreadable"}, id="a plan without a type"),
        pytest.param(
            {"plan": {"deployment_type": "SCRATCH_2", "storage_capacity": 1200}},
            {"plan-unknown-field"},
            id="a plan with a misspelt field",
        ),
        pytest.param({"dataset": "{}"}, {"dataset-unreadable"}, id="a manifest that is a text"),
        pytest.param({"dataset": {"uri": URI}}, {"bytes-unreadable"}, id="a manifest without a size"),
        pytest.param({"plan": None}, {"rate-missing"}, id="nothing to size from"),
        pytest.param(
            {"plan": None, "epoch_seconds": 30, "need": {"gpu": 8}}, {"need-unknown-field"}, id="unknown need"
        ),
        pytest.param(
            {"security_group_ids": [CLOSED], "plan": {"deployment_type": "SCRATCH_2"}},
            {"lustre-ports-closed", "capacity-missing"},
            id="two at once",
        ),
    ],
)
def test_what_is_wrong_is_said_at_once_and_nothing_is_created(
    aws: FakeConnection, arguments: Mapping[str, Any], rules: set[str]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        run(create_task(aws, **arguments), aws, context())

    assert {problem.rule for problem in refused.value.problems} == rules
    assert all(problem.remedy for problem in refused.value.problems)
    assert not aws.fsx.tokens


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("nodes", 0, id="no nodes"),
        pytest.param("nodes", 1.5, id="half a node"),
        pytest.param("epochs", "many", id="epochs in words"),
        pytest.param("epoch_seconds", -3, id="negative seconds"),
        pytest.param("epoch_seconds", float("nan"), id="no number of seconds"),
        pytest.param("subnet_id", "eu-west-1a", id="a zone for a subnet"),
        pytest.param("security_group_ids", [], id="no security group"),
        pytest.param("security_group_ids", "default", id="a group's name for its id"),
        pytest.param("when_not_worth_it", "maybe", id="neither create nor skip"),
    ],
)
def test_what_the_dag_file_says_wrong_is_refused_at_parse(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        LustreCreateOperator(task_id="create", **{**ORDER, field: value})

    assert [problem.field for problem in refused.value.problems] == [field]


def test_templates_are_left_alone_at_parse() -> None:
    templates = {"nodes": "{{ params.nodes }}", "subnet_id": "{{ var.json.smd.subnet_id }}"}

    task = LustreCreateOperator(task_id="create", **{**ORDER, **templates})

    assert task.nodes == templates["nodes"]


def test_without_the_right_to_look_the_network_is_left_to_fsx(aws: FakeConnection) -> None:
    aws.ec2 = FakeEc2(denied=True)

    assert run(create_task(aws), aws, context())["file_system_id"] in aws.fsx.file_systems


# -- delete ------------------------------------------------------------------------------------------------


def test_the_teardown_deletes_what_the_create_task_returned(aws: FakeConnection) -> None:
    result = run(create_task(aws), aws, context())

    assert run(delete_task(aws, result), aws, context()) == {"deleted": [result["file_system_id"]]}
    assert not aws.fsx.file_systems


def test_the_teardown_finds_the_file_system_of_a_create_task_without_a_result(aws: FakeConnection) -> None:
    with pytest.raises(TaskDeferred):
        create_task(aws).execute(context())

    run(delete_task(aws, None), aws, context())

    assert not aws.fsx.file_systems


@pytest.mark.parametrize(
    "file_system",
    [
        pytest.param(None, id="no result"),
        pytest.param({"file_system_id": None}, id="the create task skipped it"),
        pytest.param({"file_system_id": "fs-0aaaaaaaaaaaaaaa0"}, id="it is gone already"),
        pytest.param("fs-0aaaaaaaaaaaaaaa0", id="an id that is gone"),
        pytest.param([{"file_system_id": None}, None], id="results of a mapped create task"),
    ],
)
def test_nothing_to_delete_is_success(aws: FakeConnection, file_system: Any) -> None:
    run(delete_task(aws, file_system), aws, context())

    assert not aws.fsx.file_systems


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"run_id": "run-2"}, id="another run"),
        pytest.param({"map_index": 4, "run_id": "run-9"}, id="another mapped task of another run"),
    ],
)
def test_the_teardown_leaves_the_file_systems_of_others(aws: FakeConnection, other: dict[str, Any]) -> None:
    run(create_task(aws), aws, context(**other))

    run(delete_task(aws, None), aws, context())

    assert len(aws.fsx.file_systems) == 1


def test_a_teardown_that_is_not_mapped_takes_all_of_a_mapped_create_task(aws: FakeConnection) -> None:
    for map_index in range(3):
        run(create_task(aws), aws, context(map_index=map_index))

    run(delete_task(aws, None), aws, context())

    assert not aws.fsx.file_systems


def test_a_mapped_teardown_takes_only_its_own(aws: FakeConnection) -> None:
    for map_index in range(3):
        run(create_task(aws), aws, context(map_index=map_index))

    run(delete_task(aws, None), aws, context(map_index=1))

    assert len(aws.fsx.file_systems) == 2


def test_the_teardown_cancels_the_data_repository_task_that_is_in_its_way(aws: FakeConnection) -> None:
    result = run(create_task(aws), aws, context())
    aws.fsx.create_data_repository_task(
        FileSystemId=result["file_system_id"], Type="EXPORT_TO_REPOSITORY", Report={"Enabled": False}
    )

    run(delete_task(aws, result), aws, context())

    assert not aws.fsx.file_systems
    assert [task["Lifecycle"] for task in aws.fsx.tasks.values()] == ["CANCELED"]


def test_a_deletion_that_takes_too_long_fails_loudly(aws: FakeConnection) -> None:
    with pytest.raises(FileSystemLate, match="billed"):
        delete_task(aws, None).finish(context(), {"timeout": True})


def test_a_teardown_that_names_nothing_is_refused_at_parse() -> None:
    with pytest.raises(InvalidInput):
        LustreDeleteOperator(task_id="delete")


def test_setup_and_teardown_are_put_together_as_in_the_docstring() -> None:
    with DAG("d") as dag:
        create = LustreCreateOperator(task_id="create", **ORDER).as_setup()
        train = LustreDeleteOperator(task_id="train", create_task_id="x")
        delete = LustreDeleteOperator(task_id="delete", file_system=create.output)
        create >> train >> delete.as_teardown(setups=create)

    assert delete.create_task_id == "create"
    assert delete.is_teardown
    assert dag.get_task("create").downstream_task_ids == {"train", "delete"}


# -- crashes -----------------------------------------------------------------------------------------------


def _runs(aws: FakeConnection, rounds: list[Breaking], kind: str) -> Any:
    """Try a task as often as Airflow would, each try breaking where its round says; return its result."""
    for try_number, breaking in enumerate([*rounds, Breaking()], start=1):
        aws.around = breaking
        task = create_task(aws) if kind == "create" else delete_task(aws, None)
        try:
            return run(task, aws, context(try_number=try_number))
        except (Killed, Lost):
            continue
    raise AssertionError("the last try does not break")


def _calls(kind: str) -> int:
    aws = FakeConnection()
    if kind == "delete":
        run(create_task(aws), aws, context())
    aws.around = counting = Breaking()
    run(create_task(aws) if kind == "create" else delete_task(aws, None), aws, context())
    return len(counting.calls)


def _points() -> Iterator[Any]:
    for kind in ("create", "delete"):
        for call in range(1, _calls(kind) + 1):
            for when in ("before", "after"):
                for error in (Killed, Lost):
                    name = f"{kind} {error.__name__.lower()} {when} call {call}"
                    yield pytest.param(kind, {call: (when, error)}, id=name)


@pytest.mark.parametrize(("kind", "breaks"), _points())
def test_one_crash_at_any_call_leaves_one_file_system_and_then_none(
    aws: FakeConnection, kind: str, breaks: dict[int, Any]
) -> None:
    create, delete = ([Breaking(breaks)], []) if kind == "create" else ([], [Breaking(breaks)])

    result = _runs(aws, create, "create")

    assert aws.fsx.alive == [result["file_system_id"]]
    assert len(aws.fsx.associations) == 1
    _runs(aws, delete, "delete")
    assert not aws.fsx.file_systems
    assert aws.fsx.most_alive == 1


@pytest.mark.parametrize("seed", range(200))
def test_crashes_at_random_calls_never_make_two_and_never_leave_one(aws: FakeConnection, seed: int) -> None:
    """Two tries of each task break, and FSx may list late or forget its tokens."""
    chance = random.Random(seed)
    aws.fsx.lag = chance.choice([0, 0, 1])
    break_at = {
        kind: [
            Breaking(
                {
                    chance.randint(1, _CALLS[kind]): (
                        chance.choice(["before", "after"]),
                        chance.choice([Killed, Lost]),
                    )
                }
            )
            for _ in range(RETRIES)
        ]
        for kind in _CALLS
    }

    _runs(aws, break_at["create"], "create")
    if chance.random() < 0.5:
        aws.fsx.forget_tokens()
    _runs(aws, break_at["delete"], "delete")

    assert not aws.fsx.file_systems
    assert aws.fsx.most_alive == 1


@pytest.mark.parametrize("call", range(1, _calls("create") + 1))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_last_try_that_breaks_anywhere_leaves_nothing_alive(
    aws: FakeConnection, call: int, when: str
) -> None:
    aws.around = Breaking({call: (when, Lost)})
    try:
        run(create_task(aws), aws, context(try_number=RETRIES + 1))
    except Lost:
        assert not aws.fsx.alive
    else:
        assert len(aws.fsx.alive) == 1


_CALLS = Counter({"create": _calls("create"), "delete": _calls("delete")})
