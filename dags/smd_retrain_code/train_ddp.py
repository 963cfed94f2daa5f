"""Train the digit classifier of train_digits.py with PyTorch DistributedDataParallel.

On SMDDP's instances its all-reduce is used, on other GPUs NCCL, on CPUs gloo; the script is the same. Start
it with torchrun, SMDDP or mpirun; SageMaker's `distribution` does.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

import recipe
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from airflow_smd.container import rendezvous
from airflow_smd.container.report import report
from airflow_smd.container.shards import ShardReader, torch_dataset


def backend():
    """Return the fastest all-reduce there is here."""
    try:
        import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401  # registers the backend
    except ImportError:
        return "nccl" if torch.cuda.is_available() else "gloo"
    return "smddp"


def start():
    """Join the process group; return the device of this rank."""
    here = rendezvous.place()
    if "RANK" in os.environ:
        distributed.init_process_group(backend())
    else:  # mpirun, or one process on each host: no launcher wrote PyTorch's variables
        meeting = f"tcp://{here.master_addr}:{here.master_port}"
        distributed.init_process_group(
            backend(), init_method=meeting, rank=here.rank, world_size=here.world_size
        )
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
        return torch.device("cpu")
    torch.cuda.set_device(here.local_rank)
    return torch.device("cuda", here.local_rank)


def batches(reader, epoch, size, device):
    """Yield features and labels of this rank's samples, `size` at a time."""
    dataset = torch_dataset(reader, recipe.decode, batch_size=size, epoch=epoch)
    for features, labels in DataLoader(dataset, batch_size=size):
        yield features.to(device), labels.to(device)


def total(*numbers, device):
    """Return the sums over all ranks."""
    sums = torch.tensor(
        numbers, dtype=torch.float64 if device.type == "cpu" else torch.float32, device=device
    )
    distributed.all_reduce(sums)
    return sums.tolist()


@torch.no_grad()
def accuracy(model, reader, device):
    """Return the share of all ranks' validation samples that are classified right."""
    right = seen = 0
    for features, labels in batches(reader, 0, 256, device):
        right += int((model(features).argmax(dim=1) == labels).sum())
        seen += len(labels)
    right, seen = total(right, seen, device=device)
    return right / seen


def save_checkpoint(path, model, optimizer, epoch):
    """Write all or nothing: a job can be interrupted here too."""
    if path.parent.is_dir():
        partial = path.with_suffix(".partial")
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, partial
        )
        partial.replace(path)


def resume(path, model, optimizer, device):
    """Load the checkpoint that rank 0 sees, on every rank; return the epochs done."""
    saved = [None]
    if distributed.get_rank() == 0 and path.is_file():
        saved = [torch.load(path, map_location="cpu", weights_only=True)]
        print(f"Going on from {path}, after epoch {saved[0]['epoch']}", flush=True)
    distributed.broadcast_object_list(saved, device=device)
    if saved[0] is None:
        return 0
    model.load_state_dict(saved[0]["model"])
    optimizer.load_state_dict(saved[0]["optimizer"])
    return saved[0]["epoch"]


def train_epoch(options, model, optimizer, reader, epoch, device):
    """Take the steps of one epoch; return what to report at its end."""
    ranks, batch = distributed.get_world_size(), options.batch_size_per_gpu
    steps = math.ceil(len(reader) / batch)
    began = said = time.monotonic()
    samples = 0
    for step, (features, labels) in enumerate(batches(reader, epoch, batch, device), epoch * steps):
        rate = recipe.learning_rate(options, step, steps, batch * ranks)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features), labels)
        loss.backward()  # DDP averages the gradients over all ranks here
        optimizer.step()
        samples += len(labels) * ranks
        line = {"epoch": epoch + 1, "step": step + 1, "steps": options.epochs * steps, "learning_rate": rate}
        now = time.monotonic()
        if distributed.get_rank() == 0 and now - said > options.report_seconds:
            said = now
            report(**line, loss=loss.item(), samples_per_second=samples / (now - began))
    line["loss"] = total(loss.item(), device=device)[0] / ranks
    if not math.isfinite(line["loss"]):
        sys.exit(f"The loss is {line['loss']} after step {step}: lower --learning-rate or warm up longer")
    return {**line, "samples_per_second": samples / max(time.monotonic() - began, 1e-9)}


def main(options, device):
    """Train, save."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    place = {"rank": rank, "world_size": ranks}
    try:
        data = ShardReader(options.data_dir, "train", seed=options.seed, **place)
        held_out = ShardReader(options.data_dir, "validation", shuffle=False, **place)
    except (OSError, ValueError) as error:
        sys.exit(f"Rank {rank} cannot read the training channel: {error}")
    if not len(data) or not len(held_out):
        sys.exit(f"Too few samples in {options.data_dir} for {ranks} ranks: some would have none")
    torch.manual_seed(options.seed)
    model = nn.Sequential(nn.Linear(recipe.FEATURES, 64), nn.ReLU(), nn.Linear(64, recipe.CLASSES)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=options.momentum)
    checkpoint = Path(options.checkpoint_dir) / "digits.pt"
    first = resume(checkpoint, model, optimizer, device)
    parallel = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    for epoch in range(first, options.epochs):
        line = train_epoch(options, parallel, optimizer, data, epoch, device)
        line["accuracy"] = accuracy(model, held_out, device)
        if rank == 0:
            report(**line)
            save_checkpoint(checkpoint, model, optimizer, epoch + 1)
    reached = accuracy(model, held_out, device)
    if reached < options.target_accuracy:
        sys.exit(f"The accuracy is {reached:.4f}, below --target-accuracy {options.target_accuracy}")
    if rank == 0:
        directory = Path(options.model_dir)
        directory.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), directory / "model.pt")
        facts = {
            "accuracy": reached,
            "world_size": ranks,
            "backend": distributed.get_backend(),
            **vars(options),
        }
        (directory / "model.json").write_text(json.dumps(facts, indent=2) + "\n")
        print(f"Saved a model of accuracy {reached:.4f} to {options.model_dir}", flush=True)
    distributed.barrier()


if __name__ == "__main__":
    here = start()
    try:
        main(recipe.arguments(), here)
    finally:
        distributed.destroy_process_group()
