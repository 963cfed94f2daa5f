"""A Dockerfile is read as Docker reads it."""

from __future__ import annotations

import pytest

from airflow_smd.domain.dockerfile import (
    DockerfileError,
    expand,
    ignore_patterns,
    ignored,
    parse_dockerfile,
    stages,
)


def test_continuation_lines_are_joined_and_comments_inside_them_skipped():
    (run,) = parse_dockerfile("RUN apt-get update \\\n# why\n\n && apt-get install -y git\n")

    assert run.rest == "apt-get update && apt-get install -y git"
    assert (run.first_line, run.last_line) == (1, 4)


def test_the_escape_character_can_be_another():
    (run,) = parse_dockerfile("# escape=`\nRUN one `\n two")

    assert run.rest == "one two"


def test_flags_are_kept_apart_from_arguments():
    (copy,) = parse_dockerfile("copy --from=build --chmod=755 /a /b")

    assert (copy.keyword, dict(copy.flags), copy.words) == (
        "COPY",
        {"from": "build", "chmod": "755"},
        ("/a", "/b"),
    )


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        pytest.param('ENV A=1 B="two words"', {"A": "1", "B": "two words"}, id="several pairs with quotes"),
        pytest.param("ENV A some words", {"A": "some words"}, id="the old form takes the rest of the line"),
        pytest.param("ARG VERSION", {"VERSION": ""}, id="an argument without a default"),
    ],
)
def test_variables_are_read(line, pairs):
    assert parse_dockerfile(line)[0].pairs == pairs


def test_the_json_form_is_told_from_a_shell_test():
    exec_form, shell_form = parse_dockerfile('CMD ["train", "--now"]\nRUN [ -f /a ]')

    assert exec_form.exec_form == ("train", "--now")
    assert shell_form.exec_form is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "FROM a:1\nRUNN x", "line 2: unknown instruction RUNN", id="a word that is no instruction"
        ),
        pytest.param("FROM", "line 1: FROM needs an argument", id="nothing after the keyword"),
        pytest.param('ENV A="x', "line 1: env: no closing quotation", id="an open quote"),
        pytest.param("RUN <<EOF\nx\nEOF", "heredoc", id="a heredoc"),
    ],
)
def test_what_is_no_dockerfile_is_refused_with_its_line(text, message):
    with pytest.raises(DockerfileError, match=message):
        parse_dockerfile(text)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        pytest.param("$A/${A}", "1/1", id="both spellings"),
        pytest.param("${B:-2}${A:-2}", "21", id="a default for what is not set"),
        pytest.param("${A:+yes}${B:+no}", "yes", id="another word for what is set"),
        pytest.param("\\$A", "$A", id="an escaped dollar"),
        pytest.param("x$B", "x", id="what is not set is empty"),
    ],
)
def test_variables_are_replaced(text, expanded):
    assert expand(text, {"A": "1"}) == expanded


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        pytest.param("data/a.bin", True, id="a folder with what is in it"),
        pytest.param("deep/x/notes.md", True, id="two stars go through folders"),
        pytest.param("README.md", False, id="an exception after the rule"),
        pytest.param("train.py", False, id="what no rule names"),
        pytest.param("a.tmp", True, id="a star within a name"),
        pytest.param("deep/a.tmp", False, id="a star does not go through folders"),
    ],
)
def test_dockerignore_rules_are_followed_in_order(path, left_out):
    rules = ignore_patterns("# data\ndata/\n**/*.md\n!README.md\n*.tmp\n")

    assert ignored(path, rules) is left_out


def test_stages_are_known_by_name_or_number():
    assert stages(parse_dockerfile("FROM a:1 AS build\nFROM b:2")) == {"build": "a:1", "1": "b:2"}
