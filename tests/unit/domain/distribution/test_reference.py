"""The page of rules is the rules'."""

from pathlib import Path

from airflow_smd.domain.distribution.reference import page
from airflow_smd.domain.distribution.rules import RULES

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "lint-rules.md"


def test_the_page_is_current():
    assert PAGE.read_text("utf-8") == page(), (
        "write it anew: python -m airflow_smd.domain.distribution.reference"
    )


def test_every_rule_says_what_it_finds_and_why_we_know():
    assert [rule.name for rule in RULES.values() if not (rule.summary and rule.source)] == []


def test_names_are_kebab_case():
    assert [name for name in RULES if not name.replace("-", "").isalnum() or name != name.lower()] == []
