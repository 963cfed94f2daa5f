"""The example trainings, run as their users run them: real processes on the real digits."""

import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest

from airflow_smd.container import allreduce
from airflow_smd.domain.metrics import parse, progress
from airflow_smd.domain.scaling import Scaling
from tests.unit.container.worlds import environment, free_port, play_world

SCRIPTS = Path(__file__).parents[2] / "dags" / "smd_retrain_code"
sys.path.insert(0, str(SCRIPTS))

recipe, train_digits = (importlib.import_module(name) for name in ("recipe", "train_digits"))

SHARDS = 8
HELD_OUT = 324


def as_npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def write_shard(path, samples):
    with tarfile.open(path, "w") as tar:
        for key, features, label in samples:
            for extension, content in (("npy", as_npy(features)), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{key}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Return a channel of the handwritten digits: 8 shards of each split and the manifest."""
    data = pytest.importorskip("sklearn.datasets").load_digits()
    root = tmp_path_factory.mktemp("digits")
    order = np.random.default_rng(7).permutation(len(data.target))
    samples = [(f"digit-{i}", data.data[i].astype(np.float32), data.target[i]) for i in order]
    splits = {}
    for split, own in (("validation", samples[:HELD_OUT]), ("train", samples[HELD_OUT:])):
        (root / split).mkdir()
        shards = []
        for number in range(SHARDS):
            name = f"{split}/shard-{number}.tar"
            write_shard(root / name, own[number::SHARDS])
            shards.append({"name": name, "samples": len(own[number::SHARDS])})
        splits[split] = {"shards": shards}
    (root / "manifest.json").write_text(json.dumps({"splits": splits, "world_sizes": [1, 2, 4, 8]}))
    return root


def start(directory, data, size, *arguments):
    port = free_port()
    command = [sys.executable, str(SCRIPTS / "train_digits.py"), f"--model-dir={directory / 'model'}"]
    command += [f"--checkpoint-dir={directory / 'checkpoints'}", *arguments]
    return [
        subprocess.Popen(
            command,
            env={**os.environ, **environment(rank, size, port), "SM_CHANNEL_TRAINING": str(data)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def train(directory, data, size, *arguments):
    """Return exit codes, standard outputs and errors of all ranks."""
    processes = start(directory, data, size, *arguments)
    said = [process.communicate(timeout=120) for process in processes]
    return [process.returncode for process in processes], [out for out, _ in said], [err for _, err in said]


def model(directory):
    with np.load(directory / "model" / "model.npz") as saved:
        return {name: saved[name] for name in saved.files}


@pytest.fixture(scope="module")
def trained(digits, tmp_path_factory):
    directory = tmp_path_factory.mktemp("trained")
    return directory, train(directory, digits, 4, "--target-accuracy", "0.95", "--report-seconds", "0")


def test_four_ranks_reach_the_accuracy_that_is_asked_for(trained):
    directory, (codes, _, errors) = trained

    assert codes == [0] * 4, errors
    assert json.loads((directory / "model" / "model.json").read_text())["accuracy"] >= 0.95


def test_eight_ranks_reach_it_with_twice_the_batch(digits, tmp_path):
    codes, _, errors = train(tmp_path, digits, 8, "--target-accuracy", "0.95")

    assert codes == [0] * 8, errors


def test_the_saved_model_is_as_good_as_it_says(trained, digits):
    """Reckoned anew from the shards, without the script's code."""
    directory, _ = trained
    saved = model(directory)
    right = seen = 0
    for shard in sorted((digits / "validation").glob("*.tar")):
        with tarfile.open(shard) as tar:
            contents = {member.name: tar.extractfile(member).read() for member in tar}
        for name in (name for name in contents if name.endswith(".npy")):
            hidden = np.maximum(
                0, np.load(io.BytesIO(contents[name])) / 16 @ saved["hidden"] + saved["hidden_bias"]
            )
            right += (
                int(contents[name.replace(".npy", ".cls")])
                == (hidden @ saved["out"] + saved["out_bias"]).argmax()
            )
            seen += 1

    # every rank reads equally many samples, so a few of 324 are not counted by the script
    assert right / seen == pytest.approx(
        json.loads((directory / "model" / "model.json").read_text())["accuracy"], abs=8 / seen
    )


def test_progress_can_be_read_from_what_rank_0_prints(trained):
    _, (_, outputs, _) = trained
    points = [point for line in outputs[0].splitlines() if (point := parse(line))]

    assert progress(points).fraction == 1.0
    assert progress(points[:-5]).remaining_seconds > 0
    assert points[-1].values["epoch"] == 30
    assert points[-1].values["accuracy"] >= 0.95
    assert points[0].values["loss"] > 10 * points[-1].values["loss"]
    assert not any(parse(line) for output in outputs[1:] for line in output.splitlines())


def test_an_interrupted_run_ends_with_the_very_model_of_an_undisturbed_one(digits, tmp_path):
    (tmp_path / "killed" / "checkpoints").mkdir(parents=True)
    checkpoint = tmp_path / "killed" / "checkpoints" / "digits.npz"
    processes = start(tmp_path / "killed", digits, 2, "--epochs=20")
    while not checkpoint.exists():
        assert all(process.poll() is None for process in processes), processes[0].communicate()
        time.sleep(0.01)
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not (tmp_path / "killed" / "model").exists()

    codes, outputs, errors = train(tmp_path / "killed", digits, 2, "--epochs=20")
    undisturbed, _, _ = train(tmp_path / "undisturbed", digits, 2, "--epochs=20")

    assert (codes, undisturbed) == ([0, 0], [0, 0]), errors
    assert outputs[0].startswith(f"Going on from {checkpoint}, after epoch ")
    for name, values in model(tmp_path / "undisturbed").items():
        np.testing.assert_array_equal(values, model(tmp_path / "killed")[name])


def test_the_gradient_is_that_of_the_loss():
    """By finite differences: an error here would still train, only worse."""
    random = np.random.default_rng(0)
    features, labels = random.random((8, recipe.FEATURES)).astype(np.float32), np.arange(8)
    network = train_digits.Network(0)
    gradient = network.gradient(features, labels)[: train_digits.SIZE]
    checked = np.argsort(-np.abs(gradient))[:50]

    for place in checked:
        network.vector[place] += 1e-2
        above = network.gradient(features, labels)[-1]
        network.vector[place] -= 2e-2
        below = network.gradient(features, labels)[-1]
        network.vector[place] += 1e-2
        assert (above - below) / 2e-2 == pytest.approx(gradient[place], rel=0.05)


def test_ranks_that_drifted_apart_end_the_job():
    def act(env):
        with allreduce.join(20.0, env) as group:
            network = train_digits.Network(seed=0)
            if group.rank == 2:
                network.vector[5] += 1e-7
            try:
                train_digits.check_same(group, network, 1)
            except SystemExit as end:
                return end.code

    answers = play_world(act, 3)

    assert set(answers) == {"After epoch 1 the parameters of ranks [2] differ from those of rank 0"}


@pytest.mark.parametrize(
    ("size", "arguments", "said"),
    [
        pytest.param(1, ["--data-dir=/nowhere"], "/nowhere/manifest.json is missing", id="no data"),
        pytest.param(3, [], "made for world sizes [1, 2, 4, 8]", id="shards made for other world sizes"),
        pytest.param(
            2, ["--epochs=1", "--target-accuracy=0.99"], "below --target-accuracy 0.99", id="a poor model"
        ),
        pytest.param(2, ["--learning-rate=1e9"], "lower --learning-rate", id="a rate that diverges"),
    ],
)
def test_a_run_that_fails_says_why_and_leaves_no_model(digits, tmp_path, size, arguments, said):
    codes, _, errors = train(tmp_path, digits, size, *arguments)

    assert codes == [1] * size
    assert said in errors[0]
    assert "Traceback" not in errors[0]
    assert not (tmp_path / "model").exists()


def test_a_checkpoint_of_another_model_is_refused(digits, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    np.savez(tmp_path / "checkpoints" / "digits.npz", vector=np.zeros(3), velocity=np.zeros(3), epoch=1)

    codes, _, errors = train(tmp_path, digits, 1)

    assert codes == [1]
    assert "is a checkpoint of another model" in errors[0]


def test_hyperparameters_may_be_spelled_as_in_python(capsys):
    options = recipe.arguments(
        ["--batch_size_per_gpu", "8", "--model-dir=/a_b", "--mp_parameters", "ddp=True", "--epochs", "5"]
    )

    assert (options.batch_size_per_gpu, options.epochs, options.model_dir) == (8, 5, "/a_b")
    assert "Ignored, since unknown here: --mp-parameters ddp=True" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "step", "rate"),
    [
        pytest.param([], 0, 0.1, id="it begins at the base rate"),
        pytest.param([], 15, 0.25, id="half-way up"),
        pytest.param([], 30, 0.4, id="four times the batch, four times the rate"),
        pytest.param([], 65, 0.2, id="half-way down"),
        pytest.param([], 100, 0.0, id="it ends at nothing"),
        pytest.param(
            ["--learning-rate=0.4", "--learning-rate-is=scaled"], 30, 0.4, id="scaled by the caller"
        ),
        pytest.param(["--learning-rate=0.4", "--learning-rate-is=scaled"], 0, 0.1, id="and warmed up too"),
        pytest.param(["--warmup-epochs=0"], 0, 0.4, id="no warm-up"),
    ],
)
def test_the_rate_is_scaled_with_the_batch_and_warmed_up(arguments, step, rate):
    """10 epochs of 10 steps, 128 samples a step where the base rate is for 32."""
    options = recipe.arguments(["--epochs=10", *arguments])

    assert recipe.learning_rate(options, step, 10, 128) == pytest.approx(rate)


@pytest.mark.parametrize("batch_per_gpu", [4, 8, 32], ids=["half the batch", "the batch", "four times"])
def test_the_warm_up_is_the_one_that_the_plan_shows(batch_per_gpu):
    options = recipe.arguments(
        ["--epochs=10", "--warmup-epochs=2.5", f"--batch-size-per-gpu={batch_per_gpu}"]
    )
    plan = Scaling(
        reference_rate=options.learning_rate,
        reference_batch=options.base_batch_size,
        batch_per_gpu=batch_per_gpu,
        world_size=4,
        samples=1473,
        epochs=options.epochs,
        warmup_epochs=options.warmup_epochs,
    )
    shown = plan.schedule()

    for step in range(shown.warmup_steps + 1):
        rate = recipe.learning_rate(options, step, plan.steps_per_epoch, plan.global_batch)
        assert rate == pytest.approx(shown.rate_at(step))


@pytest.mark.needs("torch")
def test_pytorch_ddp_reaches_the_same_and_resumes(digits, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    command += [str(SCRIPTS / "train_ddp.py"), f"--data-dir={digits}", f"--model-dir={tmp_path / 'model'}"]
    command += [f"--checkpoint-dir={tmp_path / 'checkpoints'}", "--target-accuracy=0.95"]

    first = subprocess.run(command, capture_output=True, text=True, timeout=120)
    second = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert progress([point for line in first.stdout.splitlines() if (point := parse(line))]).fraction == 1.0
    assert "after epoch 30" in second.stdout
    assert json.loads((tmp_path / "model" / "model.json").read_text())["accuracy"] >= 0.95
