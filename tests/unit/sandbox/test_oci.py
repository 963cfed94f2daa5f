"""The plain-Python builder makes of a Dockerfile what Docker would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_smd.sandbox import oci_run
from airflow_smd.sandbox.oci import HOST_LABEL, LEFT_OUT_LABEL, Builder
from airflow_smd.sandbox.oci_store import Base, BuildError, Built, Store

HOST = Base(on_host=True, environment={"PATH": "/usr/local/bin:/usr/bin:/bin"})
runs = pytest.mark.skipif(not oci_run.namespaces(), reason="this machine allows no namespaces")


class Workshop:
    """A builder with a store and a context of its own."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory / "store")
        self.context = directory / "context"
        self.context.mkdir()
        self.said: list[str] = []

    def build(self, dockerfile: str, may_run: bool | None = None, **build_args: str) -> Built:
        self.said.clear()
        builder = Builder(self.store, self._base, self.said.append, may_run)
        return builder.build(dockerfile, self.context, build_args)

    def _base(self, name: str) -> Base:
        if name not in ("scratch", "host"):
            raise BuildError(f"manifest for {name} not found")
        return HOST if name == "host" else Base()

    def files(self, built: Built, number: int = -1) -> dict[str, Path]:
        """Return the files of one layer."""
        root = self.store.directory(built.layers[number])
        return {path.relative_to(root).as_posix(): path for path in root.rglob("*") if not path.is_dir()}

    def config(self, built: Built) -> dict:
        return json.loads(built.config)["config"]


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def test_copied_files_keep_content_and_executable_bit(workshop):
    (workshop.context / "run.sh").write_text("#!/bin/sh")
    (workshop.context / "run.sh").chmod(0o755)

    copied = workshop.files(workshop.build("FROM scratch\nCOPY run.sh /opt/"))["opt/run.sh"]

    assert (copied.read_text(), copied.stat().st_mode & 0o777) == ("#!/bin/sh", 0o755)


@pytest.mark.parametrize(
    ("copy", "paths"),
    [
        pytest.param("COPY a.txt /x", ["x"], id="one file to a name"),
        pytest.param("COPY a.txt /x/", ["x/a.txt"], id="one file into a folder"),
        pytest.param("COPY src /x", ["x/b.txt", "x/deep/c.txt"], id="a folder's content"),
        pytest.param("COPY *.txt src /x/", ["x/a.txt", "x/b.txt", "x/deep/c.txt"], id="several sources"),
        pytest.param("WORKDIR /w\nCOPY a.txt .", ["w/a.txt"], id="relative to the working directory"),
    ],
)
def test_a_target_is_a_name_or_a_folder_as_in_docker(workshop, copy, paths):
    (workshop.context / "src" / "deep").mkdir(parents=True)
    for name in ("a.txt", "src/b.txt", "src/deep/c.txt"):
        (workshop.context / name).write_text(name)

    assert sorted(workshop.files(workshop.build(f"FROM scratch\n{copy}"))) == paths


def test_a_link_below_is_followed_and_not_covered(workshop, tmp_path):
    (workshop.context / "a").write_text("1")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    built = workshop.build(f"FROM host\nCOPY a {tmp_path}/link/a")

    assert list(workshop.files(built)) == [f"{tmp_path}/real/a".lstrip("/")]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        pytest.param("COPY nothing /x", "file not found in build context", id="a file that is not there"),
        pytest.param("COPY ../secret /x", "outside the build context", id="a path that leaves the context"),
        pytest.param("COPY data /x", "excluded by .dockerignore", id="a file that is ignored"),
        pytest.param("ADD https://example.com/x /x", "fetches nothing", id="an address"),
    ],
)
def test_what_cannot_be_copied_fails_the_build(workshop, step, message):
    (workshop.context / "data").write_text("x")
    (workshop.context / ".dockerignore").write_text("data\n")

    with pytest.raises(BuildError, match=message):
        workshop.build(f"FROM scratch\n{step}")


def test_an_unknown_base_fails_the_build(workshop):
    with pytest.raises(BuildError, match="manifest for no-such:1 not found"):
        workshop.build("FROM no-such:1")


def test_equal_input_gives_an_equal_digest_in_any_store(tmp_path):
    digests = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        workshop = Workshop(tmp_path / name)
        (workshop.context / "a").write_text("1")
        digests.add(workshop.build("FROM scratch\nCOPY a /deep/a\nENV A=1").digest)

    assert len(digests) == 1


def test_a_step_with_the_same_input_is_taken_from_the_cache(workshop):
    (workshop.context / "a").write_text("1")
    first = workshop.build("FROM scratch\nCOPY a /a")

    second = workshop.build("FROM scratch\nCOPY a /a")

    assert second.digest == first.digest
    assert " ---> Using cache" in workshop.said


def test_a_changed_file_is_not_taken_from_the_cache(workshop):
    (workshop.context / "a").write_text("1")
    first = workshop.build("FROM scratch\nCOPY a /a")
    (workshop.context / "a").write_text("2")

    assert workshop.build("FROM scratch\nCOPY a /a").digest != first.digest


def test_the_configuration_says_what_the_dockerfile_says(workshop):
    built = workshop.build(
        "ARG BASE=scratch\nFROM $BASE\nARG VERSION=1\nENV A=$VERSION B=${A:-x}\nLABEL l=$VERSION\n"
        'WORKDIR /opt\nWORKDIR ml\nUSER 1000\nEXPOSE 80\nENTRYPOINT ["train"]\nCMD now',
        VERSION="2",
    )
    config = workshop.config(built)

    assert config["Env"] == ["A=2", "B=x"]
    assert (config["WorkingDir"], config["User"], config["ExposedPorts"]) == (
        "/opt/ml",
        "1000",
        {"80/tcp": {}},
    )
    assert (config["Entrypoint"], config["Cmd"]) == (["train"], ["/bin/sh", "-c", "now"])
    assert config["Labels"] == {"l": "2"}


def test_an_image_on_this_machines_root_says_so(workshop):
    assert workshop.config(workshop.build("FROM host\nENV A=1"))["Labels"] == {HOST_LABEL: "true"}


def test_a_later_stage_goes_on_from_an_earlier_one(workshop):
    (workshop.context / "a").write_text("1")

    built = workshop.build("FROM scratch AS first\nENV A=1\nCOPY a /a\nFROM first\nENV B=2")

    assert workshop.config(built)["Env"] == ["A=1", "B=2"]
    assert list(workshop.files(built)) == ["a"]


@runs
def test_a_command_runs_over_the_layers_below_and_changes_only_its_own(workshop):
    (workshop.context / "a").write_text("from the context")

    built = workshop.build(
        "FROM host\nCOPY a /srv/in\nARG WHO=nobody\nRUN cat /srv/in > /srv/out && echo $WHO >> /srv/out",
        WHO="me",
    )

    assert {name: path.read_text() for name, path in workshop.files(built).items()} == {
        "srv/out": "from the contextme\n"
    }
    assert not Path("/srv/out").exists()


@runs
def test_what_a_command_removes_is_gone_in_the_next_step(workshop):
    (workshop.context / "a").write_text("1")

    built = workshop.build(
        "FROM host\nCOPY a /srv/a\nRUN rm /srv/a\nRUN test ! -e /srv/a && echo gone > /srv/b"
    )

    assert list(workshop.files(built)) == ["srv/b"]


@runs
def test_a_command_that_fails_fails_the_build_with_its_code(workshop):
    with pytest.raises(BuildError, match="'exit 7' returned a non-zero code: 7"):
        workshop.build("FROM host\nRUN exit 7")


@runs
def test_a_command_runs_where_and_as_whom_the_dockerfile_says(workshop):
    built = workshop.build(
        "FROM host\nWORKDIR /srv/work\nRUN pwd > /srv/where && chmod 777 /srv\nUSER 1\nRUN id -u > /srv/who"
    )

    assert workshop.files(built, -2)["srv/where"].read_text() == "/srv/work\n"
    assert workshop.files(built, -1)["srv/who"].read_text() == "1\n"


def test_what_cannot_be_run_here_is_left_out_and_said_so(workshop):
    built = workshop.build("FROM host\nRUN echo 1 > /srv/a\nENV A=1", may_run=False)

    assert workshop.config(built)["Labels"][LEFT_OUT_LABEL] == "1"
    assert any("LEFT OUT" in line for line in workshop.said)
    assert built.layers == ()
