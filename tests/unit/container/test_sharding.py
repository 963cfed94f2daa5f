import io
import math
import tarfile
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_smd.container.samples import tar_bytes
from airflow_smd.container.sharding import (
    Piece,
    Spool,
    TooFewSamples,
    deal,
    shard_count,
    shard_name,
    write_shard,
)


def pieces(sizes):
    return [Piece(sha256(str(i).encode()).digest(), "spool", i, size) for i, size in enumerate(sizes)]


SIZES = st.lists(st.integers(1, 10_000).map(lambda blocks: 512 * blocks), min_size=1, max_size=300)


@given(SIZES, st.integers(1, 16))
def test_every_sample_is_dealt_once(sizes, shards):
    dealt = deal(pieces(sizes), shards)

    assert sorted(piece.offset for pile in dealt for piece in pile) == list(range(len(sizes)))


@given(SIZES, st.integers(1, 16))
def test_shards_differ_by_one_sample_at_most(sizes, shards):
    counts = [len(pile) for pile in deal(pieces(sizes), shards)]

    assert max(counts) - min(counts) <= 1


@given(SIZES, st.integers(1, 16))
def test_shards_differ_by_one_sample_of_bytes_at_most(sizes, shards):
    loads = [sum(piece.size_bytes for piece in pile) for pile in deal(pieces(sizes), shards)]

    assert max(loads) - min(loads) <= max(sizes)


@given(SIZES, st.sampled_from([2, 4, 8]), st.sampled_from([1, 2, 3]))
def test_ranks_differ_by_one_sample_at_most_for_every_world_size(sizes, world_size, factor):
    dealt = deal(pieces(sizes), 8 * factor)

    ranks = [sum(map(len, dealt[rank::world_size])) for rank in range(world_size)]
    assert max(ranks) - min(ranks) <= 1


@given(SIZES, st.integers(1, 8), st.randoms())
def test_the_order_in_which_processes_finish_changes_nothing(sizes, shards, random):
    given_order = pieces(sizes)
    shuffled = list(given_order)
    random.shuffle(shuffled)

    assert deal(shuffled, shards) == deal(given_order, shards)


def test_image_like_sizes_are_balanced_to_a_thousandth():
    """2,000 sizes spread over a factor of ten, as photographs are."""
    sizes = [30_000 + (i * 7919) % 270_000 for i in range(2000)]

    loads = [sum(piece.size_bytes for piece in pile) for pile in deal(pieces(sizes), 16)]

    assert max(loads) / (sum(loads) / 16) <= 1.001


@given(st.integers(1, 10**6), st.integers(1, 10**12), st.integers(1, 64), st.integers(10**6, 2**28))
def test_the_number_of_shards_is_a_multiple_and_no_shard_is_empty(samples, size, multiple, shard_bytes):
    if samples < multiple:
        with pytest.raises(TooFewSamples, match=f"train has {samples} samples"):
            shard_count(samples, size, multiple=multiple, shard_bytes=shard_bytes, split="train")
        return

    count = shard_count(samples, size, multiple=multiple, shard_bytes=shard_bytes, split="train")

    assert count % multiple == 0
    assert 0 < count <= samples


def test_shards_come_near_to_the_wanted_size():
    count = shard_count(10**6, 64 * 2**30, multiple=math.lcm(8, 16), shard_bytes=2**27, split="train")

    assert count == 512


def test_too_few_validation_samples_say_which_setting_helps():
    with pytest.raises(TooFewSamples, match="validation_fraction"):
        shard_count(3, 100, multiple=8, shard_bytes=100, split="validation")


def test_layouts_never_share_a_name():
    """A run on two instances must not overwrite the shards of a run on one."""
    one = {shard_name("train", number, 0, 1) for number in range(50)}
    two = {shard_name("train", number, host, 2) for number in range(50) for host in range(2)}

    assert not one & two
    assert len(two) == 100


@pytest.fixture
def shard(tmp_path):
    spool = Spool(str(tmp_path / "spool"))
    written = [spool.add(bytes([i]) * 16, tar_bytes({"__key__": f"k{i}", "cls": i})) for i in range(5)]
    spool.flush()
    return write_shard((str(tmp_path), "train/shard-000000.tar", written[::-1])), tmp_path


def test_a_shard_holds_its_samples_in_the_given_order(shard):
    row, directory = shard

    with tarfile.open(directory / row["name"]) as archive:
        assert archive.getnames() == ["k4.cls", "k3.cls", "k2.cls", "k1.cls", "k0.cls"]


def test_the_manifest_row_describes_the_file(shard):
    row, directory = shard
    content = (directory / row["name"]).read_bytes()

    assert (row["bytes"], row["samples"]) == (len(content), 5)
    assert row["sha256"] == sha256(content).hexdigest()


def test_nothing_of_a_shard_is_visible_before_it_is_whole(shard):
    _, directory = shard

    assert [path.name for path in (directory / "train").iterdir()] == ["shard-000000.tar"]


def test_gnu_tar_s_end_of_archive_is_there(shard):
    row, directory = shard

    assert io.BytesIO((directory / row["name"]).read_bytes()[-1024:]).read() == b"\0" * 1024
