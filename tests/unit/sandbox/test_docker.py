"""What image names mean to the sandbox's docker."""

from __future__ import annotations

import io
from argparse import Namespace
from pathlib import Path

import pytest

from airflow_smd.sandbox import docker
from airflow_smd.sandbox.docker import Docker
from airflow_smd.sandbox.oci_store import BuildError

OURS = "123456789012.dkr.ecr.us-east-1.amazonaws.com/digits:1"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def shim(tmp_path: Path) -> Docker:
    return Docker(
        images=tmp_path / "images",
        endpoint_url=NOWHERE,
        account="123456789012",
        python=Path("/usr/bin/python3"),
        mode="python",
    )


def build(shim: Docker, directory: Path, dockerfile: str, *tags: str, **more: list[str]) -> None:
    (directory / "Dockerfile").write_text(dockerfile)
    given = {"build_arg": [], **more}
    shim.build(Namespace(context=str(directory), file=None, tag=list(tags), **given))


@pytest.mark.parametrize(
    "base",
    [
        pytest.param("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2.0", id="a DLC"),
        pytest.param(
            "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/tensorflow-training:2.19", id="in China"
        ),
        pytest.param(
            "658645717510.dkr.ecr.us-west-2.amazonaws.com/smdistributed-modelparallel:2.4", id="SMP"
        ),
        pytest.param("public.ecr.aws/deep-learning-containers/pytorch:2.11", id="a public DLC"),
        pytest.param("sandbox/host:1", id="the host by name"),
    ],
)
def test_this_machines_root_stands_for_what_aws_brings(shim, tmp_path, capsys, base):
    build(shim, tmp_path, f"FROM {base}\nENV A=1\n", OURS)

    assert "this machine's own root stands for it" in capsys.readouterr().out


@pytest.mark.parametrize(
    "base",
    [
        pytest.param("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-trainning:2.2.0", id="misspelt"),
        pytest.param("python:3.11-slim", id="an image of Docker Hub"),
    ],
)
def test_a_base_that_nobody_has_fails_by_name(shim, tmp_path, base):
    with pytest.raises(BuildError, match="manifest unknown"):
        build(shim, tmp_path, f"FROM {base}\n", OURS)


def test_a_base_built_before_is_found_by_its_tag(shim, tmp_path, capsys):
    build(shim, tmp_path, "FROM scratch\nENV A=1\n", "mine:1")
    shim.tag(Namespace(source="mine:1", target="mine:2"))

    build(shim, tmp_path, "ARG BASE\nFROM $BASE\nENV B=1\n", OURS, build_arg=["BASE=mine:2"])

    assert "Successfully built" in capsys.readouterr().out


def test_a_push_elsewhere_is_denied(shim):
    with pytest.raises(BuildError, match="only the registry of account 123456789012"):
        shim.push(Namespace(image="999999999999.dkr.ecr.us-east-1.amazonaws.com/x:1"))


def test_an_empty_password_is_refused(shim, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    with pytest.raises(BuildError, match="Password Required"):
        shim.login(Namespace(password_stdin=True, password=""))


def test_bases_are_replaced_where_they_stand_and_nothing_else():
    text = "ARG V=1\nFROM a:$V \\\n  AS one\nRUN echo a:1\nFROM one\n"

    replaced = docker._with_bases(text, {"V": "1"}, {"a:1": "b:2"})

    assert replaced == "ARG V=1\nFROM b:2 AS one\n\nRUN echo a:1\nFROM one\n"


def test_other_aws_commands_are_named_as_missing(capsys, monkeypatch):
    monkeypatch.setenv("SMD_SANDBOX_SHIMS", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")

    assert docker.aws(["s3", "ls"]) == 127
    assert "not s3 ls" in capsys.readouterr().err
