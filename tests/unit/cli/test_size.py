"""airflow-smd size: what it prints, draws and refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from airflow_smd.cli import main

SEED = ("size", "--dataset", "100GB", "--epoch-seconds", "30", "--nodes", "4")


@pytest.fixture
def size(capsys):
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main([*SEED, *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def answer(size, *arguments: str) -> dict:
    code, out, _ = size("--json", *arguments)
    assert code == 0
    return json.loads(out)


def test_the_example_of_aws_as_json(size):
    told = answer(size)

    assert told["required_mbps"] == pytest.approx(3333.3, abs=0.1)
    assert told["plan"]["deployment_type"] == "SCRATCH_2"
    assert told["plan"]["storage_capacity_gib"] == 12000
    assert told["plan"]["per_unit_storage_throughput"] is None
    assert told["plan"]["read_mbps"] == pytest.approx(2343.75)
    assert told["plan"]["ram_cache_gib"] == pytest.approx(78.5, abs=0.05)
    assert [round(seconds) for seconds in told["epoch_seconds"][:4]] == [43, 32, 30, 30]
    assert told["usd_per_hour"] == pytest.approx(2.30, abs=0.01)
    assert told["limited_by"] == "disk"
    assert told["input_mode"] == "FSxLustre"


def test_alternatives_have_the_figures_of_a_plan_and_why_they_lost(size):
    for loser in answer(size)["alternatives"]:
        assert loser["storage_capacity_gib"] > 0
        assert loser["read_mbps"] > 0
        assert loser["epoch_seconds"]
        assert loser["lost_because"]


def test_an_instance_type_brings_its_price_so_that_money_decides(size):
    told = answer(size, "--instance-type", "ml.p4d.24xlarge")

    assert told["plan"]["storage_capacity_gib"] == 16800
    assert told["usd_per_run"] > 0


def test_little_data_is_told_to_go_without_a_file_system(capsys):
    assert main(["size", "--dataset", "5GB", "--epoch-seconds", "30", "--nodes", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)

    assert (told["input_mode"], told["plan"]) == ("File", None)
    assert told["why"]
    assert told["alternatives"][0]["deployment_type"] == "SCRATCH_2"


@pytest.mark.parametrize(
    "rate",
    [
        pytest.param(("--samples-per-second", "29000", "--bytes-per-sample", "114660"), id="samples"),
        pytest.param(("--mbps-per-gpu", "105.4", "--instance-type", "ml.p4d.24xlarge"), id="GPUs"),
    ],
)
def test_a_rate_can_be_told_in_other_ways(capsys, rate):
    """29 000 ResNet-50 images a second, or the 32 A100 that read them, ask for about 3.3 GB/s."""
    assert main(["size", "--dataset", "150GB", "--nodes", "4", "--json", *rate]) == 0

    assert json.loads(capsys.readouterr().out)["required_mbps"] == pytest.approx(3350, rel=0.02)


def test_the_table_shows_the_plan_its_losers_and_why(size):
    code, out, _ = size()

    assert code == 0
    assert out.startswith("SCRATCH_2, 12,000 GiB: reads 2.34 GB/s, $2.30 an hour")
    for text in ("chosen", "PERSISTENT_2-1000", "3.33 GB/s", "Why:", "after one warm-up epoch", "488 GiB"):
        assert text in out


def test_every_bad_option_is_told_at_once_as_it_was_spelled(capsys):
    bad = (
        "--dataset",
        "lots",
        "--nodes",
        "-4",
        "--epoch-seconds",
        "0",
        "--epochs",
        "many",
        "--region",
        "mars-1",
    )

    assert main(["size", *bad, "--instance-type", "ml.p4d.huge", "--deployment-type", "SCRATCH_7"]) == 1
    err = capsys.readouterr().err

    assert "7 problems" in err
    for option in (*bad[::2], "--instance-type", "--deployment-type"):
        assert f"{option}=" in err
    assert "Traceback" not in err


def test_tables_that_cannot_be_read_are_refused(size, tmp_path):
    code, _, err = size("--facts", str(tmp_path / "none.json"))

    assert code == 1
    assert "--facts=" in err


def test_your_own_prices_and_facts_are_taken(size, tmp_path):
    prices, facts = tmp_path / "prices.json", tmp_path / "facts.json"
    prices.write_text(
        json.dumps(
            {"lustre": [{"family": "SCRATCH_2", "tier": None, "region": "moon-1", "usd_per_gb_month": 0.73}]}
        )
    )
    facts.write_text(json.dumps({"regions": {"groups": {"all": {"regions": ["moon-1"]}}}}))

    told = answer(size, "--region", "moon-1", "--prices", str(prices), "--facts", str(facts))

    assert told["usd_per_hour"] == pytest.approx(12.0)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--instance-type", "ml.p4d.24xlarge"), id="with the money of the run"),
        pytest.param((), id="with the price of an hour"),
        pytest.param(("--region", "eu-west-1"), id="without a price"),
        pytest.param(("--epochs", "1", "--insist"), id="of one epoch"),
    ],
)
def test_a_picture_is_drawn(size, tmp_path, arguments):
    pytest.importorskip("matplotlib")
    path = tmp_path / "size.png"

    assert size("--plot", str(path), *arguments)[0] == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 20_000


def test_a_picture_that_cannot_be_written_is_refused(size, tmp_path):
    pytest.importorskip("matplotlib")
    code, _, err = size("--plot", str(tmp_path / "none" / "size.png"))

    assert code == 1
    assert "plot-unwritable" in err


def test_without_matplotlib_the_extra_is_named():
    """In a process of its own, where importing matplotlib fails as on a machine without it."""
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from airflow_smd.cli import main\n"
        f"sys.exit(main({[*SEED, '--plot', 'size.png']!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "pip install 'airflow-smd[plot]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_sizing_loads_neither_airflow_nor_an_aws_library_nor_matplotlib():
    code = (
        "import sys\n"
        "from airflow_smd.cli import main\n"
        f"main({[*SEED, '--json']!r})\n"
        "bad = {'airflow', 'boto3', 'botocore', 'matplotlib', 'numpy', 'sagemaker'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
