"""Train a digit classifier on all processes of a SageMaker job, with numpy alone.

Data parallel: each rank reads its own shards, gradients are averaged over all ranks at every step, so every
rank holds the same parameters, and that is checked. An interrupted run goes on from its last checkpoint.
Replace Network and recipe.decode with your own.
"""

import itertools
import json
import math
import os
import sys
import time
import zlib
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process is one core's worth; more threads only wait

try:
    import numpy as np
except ImportError:
    sys.exit("numpy is missing in this image: name it in requirements.txt beside the training script")

import recipe

from airflow_smd.container import allreduce
from airflow_smd.container.report import report
from airflow_smd.container.shards import ShardReader

HIDDEN = 64
SHAPES = ((recipe.FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, recipe.CLASSES), (recipe.CLASSES,))
SIZE = sum(map(math.prod, SHAPES))


def views(vector):
    """Return the weights and biases that lie one after the other in `vector`."""
    ends = list(itertools.accumulate(map(math.prod, SHAPES)))
    return [vector[end - math.prod(shape) : end].reshape(shape) for shape, end in zip(SHAPES, ends)]  # noqa: B905


class Network:
    """64-64-10 with ReLU; the parameters are one vector, so that one all-reduce does for all gradients."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        self.vector = np.zeros(SIZE, np.float32)
        self.hidden, self.hidden_bias, self.out, self.out_bias = views(self.vector)
        for weights in (self.hidden, self.out):
            weights[:] = random.normal(0, math.sqrt(2 / len(weights)), weights.shape)

    def forward(self, features):
        """Return the hidden layer and the probability of each digit."""
        hidden = np.maximum(0, features @ self.hidden + self.hidden_bias)
        scores = hidden @ self.out + self.out_bias
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, scores / scores.sum(axis=1, keepdims=True)

    def gradient(self, features, labels):
        """Return the mean gradient of the cross entropy, and after it the mean loss, in one vector."""
        hidden, chances = self.forward(features)
        rows = np.arange(len(labels))
        result = np.empty(SIZE + 1, np.float32)
        to_hidden, to_hidden_bias, to_out, to_out_bias = views(result[:SIZE])
        result[SIZE] = -np.log(chances[rows, labels] + 1e-12).mean()
        chances[rows, labels] -= 1
        chances /= len(labels)
        to_out[:], to_out_bias[:] = hidden.T @ chances, chances.sum(axis=0)
        back = (chances @ self.out.T) * (hidden > 0)
        to_hidden[:], to_hidden_bias[:] = features.T @ back, back.sum(axis=0)
        return result


def batches(reader, epoch, size):
    """Yield features and labels of this rank's samples, `size` at a time."""
    samples = map(recipe.decode, reader.epoch(epoch))
    while batch := list(itertools.islice(samples, size)):
        yield np.stack([features for features, _ in batch]), np.array([label for _, label in batch])


def accuracy(group, network, reader):
    """Return the share of all ranks' validation samples that are classified right."""
    counts = np.zeros(2)
    for features, labels in batches(reader, 0, 256):
        counts += (network.forward(features)[1].argmax(axis=1) == labels).sum(), len(labels)
    right, seen = group.sum(counts)
    return float(right / seen)


def check_same(group, network, epoch):
    """End the job if ranks drifted apart: they would be training different models."""
    checksum = np.array(zlib.crc32(network.vector.tobytes()))
    differs = np.zeros(group.world_size, np.int64)
    differs[group.rank] = checksum != group.broadcast(checksum)
    if (wrong := np.flatnonzero(group.sum(differs))).size:
        sys.exit(f"After epoch {epoch} the parameters of ranks {wrong.tolist()} differ from those of rank 0")


def save_checkpoint(path, network, velocity, epoch):
    """Write all or nothing: a job can be interrupted here too."""
    if not path.parent.is_dir():
        return
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(file, vector=network.vector, velocity=velocity, epoch=epoch)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def resume(group, path, network, velocity):
    """Give every rank what rank 0 holds, from the checkpoint if there is one; return the epochs done."""
    done = np.array(0)
    if group.rank == 0 and path.is_file():
        with np.load(path) as saved:
            if saved["vector"].shape != network.vector.shape:
                sys.exit(f"{path} is a checkpoint of another model: empty the directory or name another")
            network.vector[:], velocity[:], done[...] = saved["vector"], saved["velocity"], saved["epoch"]
        print(f"Going on from {path}, after epoch {done}", flush=True)
    network.vector[:], velocity[:] = group.broadcast(network.vector), group.broadcast(velocity)
    return int(group.broadcast(done))


def save_model(directory, network, facts):
    """Write the parameters and what is to be known about them."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    names = ("hidden", "hidden_bias", "out", "out_bias")
    np.savez(directory / "model.npz", **dict(zip(names, views(network.vector))))  # noqa: B905
    (directory / "model.json").write_text(json.dumps(facts, indent=2) + "\n")


def train_epoch(options, group, network, velocity, reader, epoch):
    """Take the steps of one epoch; return what to report at its end."""
    batch = options.batch_size_per_gpu
    steps = math.ceil(len(reader) / batch)
    began = said = time.monotonic()
    samples = 0
    for step, (features, labels) in enumerate(batches(reader, epoch, batch), epoch * steps):
        mean = group.mean(network.gradient(features, labels))
        if not np.isfinite(mean[SIZE]):
            sys.exit(f"The loss is {mean[SIZE]} at step {step}: lower --learning-rate or warm up longer")
        rate = recipe.learning_rate(options, step, steps, batch * group.world_size)
        velocity *= options.momentum
        velocity += mean[:SIZE]
        network.vector -= np.float32(rate) * velocity
        samples += len(labels) * group.world_size
        now = time.monotonic()
        line = {
            "epoch": epoch + 1,
            "step": step + 1,
            "steps": options.epochs * steps,
            "loss": mean[SIZE],
            "samples_per_second": samples / max(now - began, 1e-9),
            "learning_rate": rate,
        }
        if group.rank == 0 and now - said > options.report_seconds:
            said = now
            report(**line)
    return line


def main(options, group):
    """Train, check, save."""
    try:
        data = ShardReader(
            options.data_dir, "train", rank=group.rank, world_size=group.world_size, seed=options.seed
        )
        held_out = ShardReader(
            options.data_dir, "validation", rank=group.rank, world_size=group.world_size, shuffle=False
        )
    except (OSError, ValueError) as error:
        sys.exit(f"Rank {group.rank} cannot read the training channel: {error}")
    if not len(data) or not len(held_out):
        sys.exit(f"Too few samples in {options.data_dir} for {group.world_size} ranks: some would have none")
    network, velocity = Network(options.seed), np.zeros(SIZE, np.float32)
    checkpoint = Path(options.checkpoint_dir) / "digits.npz"
    for epoch in range(resume(group, checkpoint, network, velocity), options.epochs):
        line = train_epoch(options, group, network, velocity, data, epoch)
        check_same(group, network, epoch + 1)
        line["accuracy"] = accuracy(group, network, held_out)
        if group.rank == 0:
            report(**line)
            save_checkpoint(checkpoint, network, velocity, epoch + 1)
    reached = accuracy(group, network, held_out)
    if reached < options.target_accuracy:
        sys.exit(f"The accuracy is {reached:.4f}, below --target-accuracy {options.target_accuracy}")
    if group.rank == 0:
        facts = {"accuracy": reached, "world_size": group.world_size, **vars(options)}
        save_model(options.model_dir, network, facts)
        print(f"Saved a model of accuracy {reached:.4f} to {options.model_dir}", flush=True)


if __name__ == "__main__":
    with allreduce.join() as everyone:
        main(recipe.arguments(), everyone)
