"""The whole work of a container, on real files and in real processes."""

import io
import json
import subprocess
import sys
import tarfile
import time
from hashlib import sha256
from pathlib import Path

import numpy
import pytest

from airflow_smd.aws.preprocess_code import code_files
from airflow_smd.container.mapping import Job, PreprocessError, chunks, input_files, is_data
from airflow_smd.container.preprocess import Place, main, run
from airflow_smd.domain import dataset

datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn ships the handwritten digits")
TABULAR = {"kind": "tabular", "dtype": "uint8"}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Return a directory of four CSV files of handwritten digits: 64 numbers from 0 to 16 and the label."""
    directory = tmp_path_factory.mktemp("digits")
    pixels, labels = datasets.load_digits(return_X_y=True)
    rows = numpy.column_stack([pixels, labels]).astype(int)
    for number in range(4):
        numpy.savetxt(directory / f"digits-{number}.csv", rows[number::4], fmt="%d", delimiter=",")
    return directory


def job(**changes):
    given = {"transform": TABULAR, "world_sizes": [1, 2, 8], "validation_fraction": 0.1, **changes}
    return Job(**given)


def contents(directory):
    """Return every file of a data set with its checksum."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {path.relative_to(directory).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files}


def samples(directory, shards):
    for shard in shards:
        with tarfile.open(directory / shard["name"]) as archive:
            members = [(member.name, archive.extractfile(member).read()) for member in archive]
        for (name, label), (_, features) in zip(members[::2], members[1::2], strict=True):
            yield name.removesuffix(".cls"), int(label), numpy.load(io.BytesIO(features))


def test_every_digit_arrives_once_and_unchanged(digits, tmp_path):
    part = run(job(), Place(digits, tmp_path))

    pixels, labels = datasets.load_digits(return_X_y=True)
    arrived = {}
    for split in ("train", "validation"):
        for key, label, features in samples(tmp_path, part["splits"][split]["shards"]):
            _, file, row = key.split("-")
            arrived[4 * (int(row) - 1) + int(file)] = (label, features)
    assert sorted(arrived) == list(range(len(labels)))
    assert all(arrived[i][0] == labels[i] and (arrived[i][1] == pixels[i]).all() for i in arrived)


def test_the_number_of_processes_changes_no_byte(digits, tmp_path):
    for processes in (1, 2, 3):
        run(job(), Place(digits, tmp_path / str(processes), processes=processes))

    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "3")


def test_nothing_half_finished_is_left(digits, tmp_path):
    run(job(), Place(digits, tmp_path))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "train", "validation"]


def test_every_world_size_gets_its_share(digits, tmp_path):
    part = run(job(), Place(digits, tmp_path))

    for split in part["splits"].values():
        for world_size in (1, 2, 8):
            ranks = [split["shards"][rank::world_size] for rank in range(world_size)]
            counts = [sum(shard["samples"] for shard in rank) for rank in ranks]
            loads = [sum(shard["bytes"] for shard in rank) for rank in ranks]
            assert max(counts) - min(counts) <= 1
            assert max(loads) / (sum(loads) / world_size) <= 1.05


def test_ranks_are_balanced_although_instances_are_not(digits, tmp_path):
    """Host 0 gets three of the four files; every rank still reads as much as any other."""
    shares = ([0, 1, 2], [3])
    parts = []
    for host, numbers in enumerate(shares):
        share = tmp_path / f"in-{host}"
        share.mkdir()
        for number in numbers:
            (share / f"digits-{number}.csv").symlink_to(digits / f"digits-{number}.csv")
        parts.append(run(job(shard_bytes=200_000), Place(share, tmp_path / "out", host=host, hosts=2)))

    source = dataset.Source(
        uri="s3://b/raw/",
        objects=[
            dataset.SourceObject(name=f.name, etag="", size_bytes=f.size_bytes) for f in input_files(digits)
        ],
    )
    assert dataset.disagreement(parts, hosts=2, source=source.summary()) is None
    manifest = dataset.merged(
        parts, uri="", fingerprint="", source={}, transform={}, world_sizes=[1, 2, 8], created_by=""
    )
    shards = manifest.splits["train"]
    assert len({shard.name for shard in shards}) == len(shards) > 16
    for world_size in (2, 8):
        ranks = [sum(s.size_bytes for s in shards[rank::world_size]) for rank in range(world_size)]
        assert max(ranks) / (sum(ranks) / world_size) <= 1.01


def test_the_seed_changes_the_order_and_not_the_split(digits, tmp_path):
    keys = {}
    for seed in (0, 1):
        part = run(job(seed=seed), Place(digits, tmp_path / str(seed)))
        keys[seed] = [key for key, *_ in samples(tmp_path / str(seed), part["splits"]["train"]["shards"])]

    assert keys[0] != keys[1]
    assert sorted(keys[0]) == sorted(keys[1])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({}, "a bad sample (transform.on_bad is 'fail'", id="fail"),
        pytest.param(
            {"on_bad": "skip", "max_bad": 1}, "more than max_bad=1 bad samples", id="over the quota"
        ),
    ],
)
def test_bad_samples_end_the_job_with_one_error_that_names_the_first(tmp_path, changes, said):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1,2,3\nx,2,3\n1,2\n")

    with pytest.raises(PreprocessError) as caught:
        run(job(transform=TABULAR | changes, world_sizes=[1]), Place(tmp_path / "in", tmp_path / "out"))

    assert said in str(caught.value)
    assert "a.csv row 2: " in str(caught.value)


def test_bad_samples_within_the_quota_are_counted_and_listed(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1,2,3\nx,2,3\n1,2\n4,5,6\n")
    transform = TABULAR | {"on_bad": "skip"}

    part = run(
        job(transform=transform, world_sizes=[1], validation_fraction=0.0),
        Place(tmp_path / "in", tmp_path / "out"),
    )

    assert part["skipped"] == {"columns": 1, "not-a-number": 1}
    assert [bad["source"] for bad in part["skipped_samples"]] == ["a.csv row 2", "a.csv row 3"]
    assert part["splits"]["train"]["samples"] == 2


def test_a_failed_run_leaves_no_partial_manifest(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1,2,3\n")
    place = Place(tmp_path / "in", tmp_path / "out")
    one = job(world_sizes=[1], validation_fraction=0.0)
    run(one, place)
    (tmp_path / "in" / "b.csv").write_text("x,2,3\n")

    with pytest.raises(PreprocessError):
        run(one, place)

    assert not place.part.exists()


def test_files_of_different_widths_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1,2,3\n" * 999)
    (tmp_path / "in" / "b.csv").write_text("1,2\n" * 999)

    with pytest.raises(PreprocessError, match="differ"):
        run(job(world_sizes=[1]), Place(tmp_path / "in", tmp_path / "out"))


def test_two_samples_of_one_key_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", "a.png"):
        (tmp_path / "in" / name).write_bytes(b"x")

    with pytest.raises(PreprocessError, match=r"two samples have the key of 'a\.(jpg|png)'"):
        run(
            job(transform={"kind": "copy"}, world_sizes=[1], validation_fraction=0.0),
            Place(tmp_path / "in", tmp_path / "out"),
        )


def test_fewer_samples_than_ranks_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1,2,3\n" * 5)

    with pytest.raises(PreprocessError, match=r"train has 5 samples on this host, but .* 8 shards"):
        run(job(validation_fraction=0.0), Place(tmp_path / "in", tmp_path / "out"))


def test_a_host_without_files_says_so(tmp_path):
    with pytest.raises(PreprocessError, match="host 1 of 2 got no input file"):
        run(job(), Place(tmp_path, tmp_path / "out", host=1, hosts=2))


@pytest.mark.parametrize("name", ["", "_SUCCESS", "a/.DS_Store", "a/", "_tmp.csv", "a/b.csv", "b.csv"])
def test_container_and_plan_agree_on_what_counts(name):
    assert is_data(name) is dataset.is_data(name)


def test_chunks_hold_every_file_once_and_feed_every_process(digits):
    files = input_files(digits)

    tasks = list(chunks(files, processes=2))

    assert [file for task in tasks for file in task] == files
    assert len(tasks) >= 2


def test_the_command_seals_what_it_made(digits, tmp_path, capsys):
    arguments = ["--input", str(digits), "--output", str(tmp_path), "--transform", json.dumps(TABULAR)]

    assert main([*arguments, "--world-sizes", "1,4", "--validation-fraction", "0.1"]) == 0

    manifest = dataset.Manifest.loads((tmp_path / "manifest.json").read_text(), "here")
    assert (len(manifest.splits["train"]), list(manifest.world_sizes)) == (4, [1, 4])
    assert "1797 samples" in capsys.readouterr().out


def test_the_command_that_fails_breaks_the_seal(digits, tmp_path, capsys):
    """A manifest of an earlier run must not vouch for half of a new one."""
    arguments = ["--input", str(digits), "--output", str(tmp_path), "--transform", json.dumps(TABULAR)]
    main(arguments)

    assert main([*arguments, "--world-sizes", "5000"]) == 1

    assert not (tmp_path / "manifest.json").exists()
    assert "error: train has" in capsys.readouterr().err


class Container:
    """A directory laid out as SageMaker lays out /opt/ml for one host of a processing job."""

    def __init__(self, root: Path, source: Path, config: Job, user: Path | None = None, hosts=("algo-1",)):
        self.root = root
        code = root / "processing" / "input" / "code"
        code.mkdir(parents=True)
        for name, content in code_files(user).items():
            (code / name).write_bytes(content)
        (code / "job.json").write_text(json.dumps(config._asdict()))
        (root / "processing" / "input" / "data").symlink_to(source)
        (root / "config").mkdir()
        resources = {"current_host": hosts[0], "hosts": list(hosts)}
        (root / "config" / "resourceconfig.json").write_text(json.dumps(resources))
        self.output = root / "processing" / "output"

    def start(self):
        command = [sys.executable, "-I", str(self.root / "processing/input/code/preprocess.pyz")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self):
        process = self.start()
        log = process.communicate(timeout=120)[0]
        return process.returncode, log


def test_the_zip_runs_alone_in_a_container(digits, tmp_path):
    """Nothing of ours is installed there: the zip carries all that it imports."""
    container = Container(tmp_path, digits, job())

    code, log = container.run()

    assert code == 0, log
    run(job(), Place(digits, tmp_path / "here"))
    assert contents(container.output) == contents(tmp_path / "here")


def test_the_users_function_comes_along(tmp_path):
    user, source = tmp_path / "user", tmp_path / "in"
    user.mkdir()
    source.mkdir()
    (user / "mine.py").write_text("def upper(sample):\n    yield {'txt': sample['txt'].upper()}\n")
    for number in range(8):
        (source / f"{number}.txt").write_text("text")
    transform = {"kind": "function", "function": "mine:upper"}
    container = Container(tmp_path / "ml", source, job(transform=transform, validation_fraction=0.0), user)

    code, log = container.run()

    assert code == 0, log
    with tarfile.open(container.output / "train" / "shard-000000.tar") as archive:
        assert archive.extractfile(archive.next()).read() == b"TEXT"


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        pytest.param(
            {"kind": "tabular", "dtype": "uint8", "label_column": 70}, "no column 70", id="bad data"
        ),
        pytest.param(
            {"kind": "function", "function": "mine:upper"}, "no Python module 'mine'", id="missing module"
        ),
    ],
)
def test_a_failure_becomes_the_exit_message(digits, tmp_path, transform, said):
    container = Container(tmp_path, digits, job(transform=transform), hosts=("algo-2", "algo-1"))

    code, _ = container.run()

    message = (tmp_path / "output" / "message").read_text()
    assert code == 1
    assert message.startswith("algo-2: ")
    assert said in message
    assert len(message.encode()) <= 1024


@pytest.mark.parametrize("after_seconds", [0.05, 0.2, 0.35, 0.5])
def test_killed_and_run_again_gives_the_same_bytes(digits, tmp_path, after_seconds):
    """Wherever SIGKILL hits, what the next run leaves is what an undisturbed run leaves."""
    container = Container(tmp_path / "ml", digits, job())
    process = container.start()
    time.sleep(after_seconds)
    process.kill()
    process.communicate()

    code, log = container.run()

    assert code == 0, log
    run(job(), Place(digits, tmp_path / "here"))
    assert contents(container.output) == contents(tmp_path / "here")


def test_a_stopped_container_ends_at_once_and_leaves_nothing_behind(tmp_path):
    """SageMaker sends SIGTERM and waits 120 s."""
    user, source = tmp_path / "user", tmp_path / "in"
    user.mkdir()
    source.mkdir()
    (user / "slow.py").write_text(
        "import pathlib, time\n"
        "def sleep(sample):\n"
        "    (pathlib.Path(sample['__path__']).parent.parent / 'began').touch()\n"
        "    time.sleep(100)\n"
        "    yield {}\n"
    )
    for number in range(8):
        (source / f"{number}.txt").write_text("text")
    container = Container(
        tmp_path / "ml", source, job(transform={"kind": "function", "function": "slow:sleep"}), user
    )
    process = container.start()
    while not list(tmp_path.rglob("began")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)

    process.terminate()

    process.communicate(timeout=30)  # ends only when every worker has let go of the log
    assert process.returncode == 143
    assert list(container.output.rglob("*.*")) == []
