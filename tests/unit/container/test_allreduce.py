import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from airflow_smd.container import allreduce
from tests.unit.container.worlds import LIMIT_SECONDS, play_world

SIZES = [pytest.param(size, id=f"{size} ranks") for size in (1, 2, 3, 4, 8)]
SHAPES = [(), (0,), (1,), (3,), (7, 13), (100_003,)]


def joined(env, timeout_seconds=20.0):
    return allreduce.join(timeout_seconds, env)


def whole_numbers(rank, shape, dtype):
    """Sums of whole numbers are exact, in whatever order they are added."""
    return np.random.default_rng(rank).integers(-1000, 1000, shape).astype(dtype)


@pytest.mark.parametrize("size", SIZES)
def test_the_sum_is_numpys_for_every_type_and_size(size):
    cases = [(shape, dtype) for shape in SHAPES for dtype in ("float32", "float64", "int64")]

    def act(env):
        with joined(env) as group:
            return [group.sum(whole_numbers(group.rank, shape, dtype)) for shape, dtype in cases]

    answers = play_world(act, size)

    for number, (shape, dtype) in enumerate(cases):
        expected = np.sum([whole_numbers(rank, shape, dtype) for rank in range(size)], axis=0)
        for answer in answers:
            assert answer[number].dtype == dtype
            np.testing.assert_array_equal(answer[number], expected)


@pytest.mark.parametrize("size", SIZES)
def test_every_rank_receives_the_same_bits(size):
    """Parameters that drift apart by rounding would be different models in the end."""

    def act(env):
        with joined(env) as group:
            return group.mean(np.random.default_rng(group.rank).normal(size=10_007)).tobytes()

    answers = play_world(act, size)
    expected = np.mean([np.random.default_rng(rank).normal(size=10_007) for rank in range(size)], axis=0)

    assert len(set(answers)) == 1
    np.testing.assert_allclose(np.frombuffer(answers[0]), expected, atol=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_a_broadcast_gives_everyone_the_array_of_the_root(size):
    def act(env):
        with joined(env) as group:
            mine = np.full(400_001, group.rank, np.float64)
            return [float(group.broadcast(mine, root).sum()) for root in range(size)]

    assert play_world(act, size) == [[root * 400_001.0 for root in range(size)]] * size


def test_what_is_passed_stays_as_it_is():
    def act(env):
        with joined(env) as group:
            mine = np.arange(6.0).reshape(2, 3)
            total = group.sum(mine.T)
            return mine.tolist(), total.tolist()

    ((kept, total), _) = play_world(act, 2)

    assert kept == [[0, 1, 2], [3, 4, 5]]
    assert total == [[0, 6], [2, 8], [4, 10]]


def test_nobody_passes_a_barrier_before_everyone_is_there(tmp_path):
    def act(env):
        with joined(env) as group:
            if group.rank == 2:
                time.sleep(0.5)
                (tmp_path / "late").touch()
            group.barrier()
            return (tmp_path / "late").exists()

    assert play_world(act, 4) == [True] * 4


@pytest.mark.parametrize(
    ("operation", "array", "problem"),
    [
        pytest.param("sum", np.array(["a"]), "takes numbers", id="a sum of words"),
        pytest.param("sum", np.array([{}]), "takes numbers", id="a sum of objects"),
        pytest.param("mean", np.array([1, 2]), "takes floats", id="a mean that would be rounded"),
    ],
)
def test_what_cannot_be_averaged_is_refused(operation, array, problem):
    with pytest.raises(TypeError, match=problem):
        getattr(allreduce.join(environment={}), operation)(array)


def test_a_rank_that_dies_is_named_by_all_others():
    def act(env):
        with joined(env) as group:
            for step in range(1000):
                if (group.rank, step) == (2, 20):
                    os._exit(1)
                group.sum(np.ones(1000))

    answers = play_world(act, 4)

    assert answers.pop(2) is None
    assert [(kind, text.split(" of 4")[0]) for kind, text in answers] == [("RankLost", "rank 2")] * 3


def test_a_rank_that_hangs_is_named():
    def act(env):
        with joined(env, timeout_seconds=0.5) as group:
            group.sum(np.ones(10))
            if group.rank == 0:
                time.sleep(2)
            return group.sum(np.ones(10))

    answers = play_world(act, 2)

    assert answers[1] == ("RankLost", "rank 0 of 2 sent and took nothing for 0.5 s (seen by rank 1)")
    assert answers[0][0] == "RankLost"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        pytest.param(lambda group: group.sum(np.ones(9)), "sums 72 bytes of <f8", id="another size"),
        pytest.param(lambda group: group.sum(np.ones(20, np.float32)), "<f4", id="another type"),
        pytest.param(lambda group: group.broadcast(np.ones(10), 1), "broadcasts", id="another operation"),
    ],
)
def test_ranks_that_do_different_things_are_told(other, said):
    """A silent mix-up would train on garbage."""

    def act(env):
        with joined(env) as group:
            return other(group) if group.rank == 1 else group.sum(np.ones(10))

    kind, text = play_world(act, 2)[0]

    assert kind == "RanksDisagree"
    assert said in text


def test_one_process_needs_no_network():
    group = allreduce.join(environment={"MASTER_ADDR": "nowhere.invalid"})

    assert group.mean(np.arange(3.0)).tolist() == [0, 1, 2]
    assert group.broadcast(np.arange(3)).tolist() == [0, 1, 2]


def test_mpirun_without_mpi4py_takes_the_ring():
    def act(env):
        found = {
            "OMPI_COMM_WORLD_RANK": env["RANK"],
            "OMPI_COMM_WORLD_SIZE": env["WORLD_SIZE"],
            "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            "MASTER_PORT": env["MASTER_PORT"],
            "SM_HOSTS": json.dumps(["127.0.0.1", "127.0.0.2"]),
        }
        with joined(found) as group:
            return group.sum(np.ones(3)).tolist()

    assert play_world(act, 2) == [[2, 2, 2]] * 2


def mpirun(script, *, ranks=3):
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), sys.executable, "-c"]
    return subprocess.run([*command, script], capture_output=True, text=True, timeout=LIMIT_SECONDS)


MPI_SCRIPT = """
import numpy as np
from airflow_smd.container import allreduce
with allreduce.join() as group:
    total = group.sum(np.arange(3.0) + group.rank).tolist()
    everyone = group.broadcast(np.array(group.rank), 2).item()
    assert (type(group).__name__, total, everyone) == ("_MpiGroup", [3.0, 6.0, 9.0], 2)
    {then}
"""


@pytest.mark.needs("mpirun", "mpi4py")
def test_mpirun_with_mpi4py_uses_mpis_own():
    result = mpirun(MPI_SCRIPT.format(then="raise SystemExit(0)"))

    assert result.returncode == 0, result.stderr


@pytest.mark.needs("mpirun", "mpi4py")
def test_an_error_under_mpi_ends_all_ranks():
    """Left alone, the failed rank waits in MPI_Finalize and the others for it, until MaxRuntime."""
    result = mpirun(MPI_SCRIPT.format(then="group.sum(np.ones(1 + 1 // (group.rank - 1)))"))

    assert result.returncode != 0
    assert "ZeroDivisionError" in result.stderr
