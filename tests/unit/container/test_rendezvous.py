import json
import socket
import time

import pytest

from airflow_smd.container import allreduce
from airflow_smd.container.rendezvous import Place, place
from tests.unit.container.worlds import environment, free_port, play, play_world

HOSTS = {"SM_HOSTS": json.dumps(["algo-1", "algo-2"])}
OMPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "algo-1", "MASTER_PORT": "7777"}


def join_for(seconds):
    def act(env):
        with allreduce.join(seconds, env) as group:
            return group.rank

    return act


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param(TORCHRUN, (3, 4, 1, "algo-1", 7777), id="torchrun"),
        pytest.param(
            {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"},
            (3, 4, 1, "algo-1", 7778),
            id="torchrun whose own store has the port",
        ),
        pytest.param({**OMPI, **HOSTS, "MASTER_PORT": "9"}, (3, 4, 1, "algo-1", 9), id="mpirun"),
        pytest.param(
            {**HOSTS, "SM_CURRENT_HOST": "algo-2", "MASTER_PORT": "9"},
            (1, 2, 0, "algo-1", 9),
            id="one process on each of SageMaker's hosts",
        ),
        pytest.param({"MASTER_PORT": "9"}, (0, 1, 0, "127.0.0.1", 9), id="a process alone"),
    ],
)
def test_a_rank_is_what_the_launcher_says(env, expected):
    assert place(env) == Place(*expected, job="")


def test_jobs_without_a_port_of_their_own_get_one_each():
    ports = {
        place({"SM_TRAINING_ENV": json.dumps({"job_name": name})}).master_port
        for name in ("mnist-1", "mnist-2")
    }

    assert len(ports) == 2


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        pytest.param({"RANK": "1"}, "WORLD_SIZE=''", id="no world size"),
        pytest.param({"RANK": "one", "WORLD_SIZE": "2"}, "RANK='one'", id="a word for a rank"),
        pytest.param({"RANK": "2", "WORLD_SIZE": "2"}, "rank 2 of 2", id="a rank outside the world"),
    ],
)
def test_a_broken_environment_is_named(env, problem):
    with pytest.raises(ValueError, match=problem):
        place(env)


def test_a_rank_that_never_comes_is_named_to_all():
    port = free_port()

    answers = play(join_for(1.0), [environment(rank, 4, port) for rank in (0, 1, 3)])

    assert [kind for kind, _ in answers] == ["RanksMissing"] * 3
    assert all(text.startswith("rank 2 of 4 did not come to 127.0.0.1:") for _, text in answers)


def test_a_missing_rank_0_is_named():
    ((kind, text),) = play(join_for(0.5), [environment(1, 2, free_port())])

    assert kind == "RanksMissing"
    assert text.startswith("rank 0 did not answer rank 1 of 2 at 127.0.0.1:")


def test_rank_0_may_come_last():
    def act(env):
        if env["RANK"] == "0":
            time.sleep(0.5)
        return join_for(20.0)(env)

    assert play_world(act, 3) == [0, 1, 2]


def test_two_processes_of_the_same_rank_are_told():
    port = free_port()

    answers = play(join_for(5.0), [environment(rank, 3, port) for rank in (0, 1, 1)])

    assert "a process came as rank 1 of 3" in answers[0][1]
    assert {kind for kind, _ in answers} == {"RanksMissing"}


def test_different_world_sizes_are_told():
    port = free_port()

    answers = play(join_for(5.0), [environment(0, 2, port), environment(1, 4, port)])

    assert "rank 1 of 4 to rank 0 of 2" in answers[0][1]


def test_a_stranger_at_the_door_does_not_disturb():
    def act(env):
        if env["RANK"] == "stranger":
            for _ in range(100):
                with_port = ("127.0.0.1", int(env["MASTER_PORT"]))
                try:
                    with socket.create_connection(with_port, timeout=1) as connection:
                        connection.sendall(b"GET / HTTP/1.1\r\nHost: algo-1\r\nUser-Agent: scanner\r\n\r\n")
                        return "sent"
                except OSError:
                    time.sleep(0.05)
        if env["RANK"] == "1":
            time.sleep(1.0)
        return join_for(20.0)(env)

    port = free_port()
    environments = [environment(rank, 2, port) for rank in (0, 1)]

    assert play(act, [*environments, {"RANK": "stranger", "MASTER_PORT": str(port)}]) == [0, 1, "sent"]


def test_a_rank_of_another_job_is_not_let_in():
    port = free_port()
    ours, theirs = ({"SM_TRAINING_ENV": json.dumps({"job_name": name})} for name in ("ours", "theirs"))

    answers = play(
        join_for(1.0), [{**environment(0, 2, port), **ours}, {**environment(1, 2, port), **theirs}]
    )

    assert "rank 1 of 2 did not come" in answers[0][1]
    assert "rank 0 did not answer rank 1 of 2" in answers[1][1]


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ((kind, text),) = play(join_for(1.0), [environment(0, 2, port)])

    assert kind == "RanksMissing"
    assert f"127.0.0.1:{port}" in text
    assert "MASTER_PORT" in text
