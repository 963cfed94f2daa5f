import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from airflow_smd.container import shards
from airflow_smd.container.mapping import Job
from airflow_smd.container.preprocess import Place, run
from airflow_smd.container.shards import ShardReader, rank_and_world_size


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Return a sealed data set of 1,003 training samples in 24 shards."""
    directory = tmp_path_factory.mktemp("shards")
    source = directory / "in"
    source.mkdir()
    for number in range(4):
        rows = "".join(f"{number},{row},{row % 10}\n" for row in range(number, 1003, 4))
        (source / f"{number}.csv").write_text(rows)
    job = Job(transform={"kind": "tabular"}, world_sizes=[1, 2, 4, 8], shard_bytes=80_000)
    part = run(job, Place(source, directory))
    (directory / "manifest.json").write_text(json.dumps({**part, "world_sizes": [1, 2, 4, 8]}))
    assert len(part["splits"]["train"]["shards"]) == 24
    return directory


def keys(reader, *arguments):
    return [sample["__key__"] for sample in reader.epoch(*arguments)]


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_ranks_share_the_samples_and_none_waits(root, world_size):
    readers = [ShardReader(root, rank=rank, world_size=world_size) for rank in range(world_size)]

    read = [keys(reader) for reader in readers]

    assert {len(rank) for rank in read} == {1003 // world_size} == {len(reader) for reader in readers}
    assert max(Counter(key for rank in read for key in rank).values()) == 1


def test_a_sample_has_its_bytes(root):
    sample = next(ShardReader(root, rank=0, world_size=1).epoch())

    row = int(sample["__key__"].split("-")[1])
    number = int(sample["__key__"].split("-")[0])
    assert int(sample["cls"]) == (number + 4 * (row - 1)) % 10
    assert sample["npy"].startswith(b"\x93NUMPY")


def test_epochs_differ_in_the_order_of_shards_only(root):
    reader = ShardReader(root, rank=0, world_size=1)

    assert keys(reader, 0) != keys(reader, 1)
    assert sorted(keys(reader, 0)) == sorted(keys(reader, 1))
    assert keys(reader, 1) == keys(ShardReader(root, rank=0, world_size=1), 1)


def test_without_shuffling_the_order_is_the_manifests(root):
    reader = ShardReader(root, rank=1, world_size=2, shuffle=False)

    assert reader.order(7) == reader.shards


@pytest.mark.parametrize("position", [0, 1, 17, 125, 250, 501, 600])
def test_training_resumes_in_the_middle_of_an_epoch(root, position):
    reader = ShardReader(root, rank=1, world_size=2)

    assert keys(reader, 3, position) == keys(reader, 3)[position:]


def test_skipped_shards_are_not_opened(root, tmp_path):
    reader = ShardReader(root, rank=0, world_size=2)
    last = reader.order(0)[-1]
    (tmp_path / "train").mkdir()
    (tmp_path / last["name"]).symlink_to(root / last["name"])
    (tmp_path / "manifest.json").symlink_to(root / "manifest.json")

    rest = keys(ShardReader(tmp_path, rank=0, world_size=2), 0, len(reader) - 10)

    assert len(rest) == 10


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8), id="torchrun and SMDDP"),
        pytest.param({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2), id="Open MPI"),
        pytest.param({"PMI_RANK": "1", "PMI_SIZE": "4"}, (1, 4), id="MPICH"),
        pytest.param({}, (0, 1), id="one process"),
    ],
)
def test_the_launcher_tells_the_rank(monkeypatch, environment, expected):
    for pair in shards._RANKS:
        for name in pair:
            monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert rank_and_world_size() == expected


@pytest.mark.parametrize(("rank", "world_size"), [(0, 7), (0, 48), (8, 8), (-1, 2)])
def test_a_world_that_the_shards_do_not_fit_is_refused(root, rank, world_size):
    with pytest.raises(ValueError, match=r"24 shards, made for world sizes \[1, 2, 4, 8\]"):
        ShardReader(root, rank=rank, world_size=world_size)


def test_an_unsealed_directory_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"manifest\.json is missing"):
        ShardReader(tmp_path)


def test_a_missing_split_names_those_that_are_there(root):
    with pytest.raises(ValueError, match=r"no split 'test', only \['train'\]"):
        ShardReader(root, "test")


def test_the_file_works_alone(root, tmp_path):
    """It is copied beside a training script, where nothing of ours is installed."""
    copy = tmp_path / "shards.py"
    copy.write_text(Path(shards.__file__).read_text())
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import shards;"
        f"print(sum(1 for _ in shards.ShardReader({str(root)!r}).epoch()))"
    )

    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "1003"


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("position", [0, 128])
def test_a_data_loader_gives_the_same_samples_for_any_number_of_workers(root, workers, position):
    data = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed")
    reader = ShardReader(root, rank=1, world_size=2)
    dataset = shards.torch_dataset(reader, _key, batch_size=32, epoch=2, position=position)

    loader = data.DataLoader(dataset, batch_size=32, num_workers=workers)

    assert [key for batch in loader for key in batch] == keys(reader, 2, position)


def test_a_position_within_a_batch_is_refused(root):
    pytest.importorskip("torch.utils.data", reason="PyTorch is not installed")

    with pytest.raises(ValueError, match="not a multiple"):
        shards.torch_dataset(ShardReader(root), _key, batch_size=32, position=5)


def _key(sample):
    return sample["__key__"]
