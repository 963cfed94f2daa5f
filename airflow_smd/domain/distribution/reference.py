"""The linter's rules as a page, written from the rules themselves."""

from __future__ import annotations

from airflow_smd.domain.distribution.rules import ALWAYS, FAMILIES, RULES

_HEAD = """# Lint rules

`airflow-smd lint` and the training operator check a job with these rules. An *error* stops the task before
anything is created, a *warning* is logged, a *note* is advice; a rule may lower its severity where a breach
is harmless. Silence one by its name: `airflow-smd lint --ignore RULE`, or `ignore_rules` of the operator.

This page is written from the rules:
`python -m airflow_smd.domain.distribution.reference > docs/reference/lint-rules.md`.
"""


def page() -> str:
    """Return the reference page of all rules."""
    parts = [_HEAD]
    for family in FAMILIES:
        name = family.__name__.rpartition(".")[2]
        parts.append(f"## {name.replace('_', ' ').capitalize()}\n\n{(family.__doc__ or '').strip()}\n")
        parts.append("| rule | severity | a breach is | why we know |\n|---|---|---|---|")
        parts += [
            f"| `{rule.name}` | {rule.severity} | {_cell(rule.summary)} | {_cell(rule.source)} |"
            for rule in RULES.values()
            if rule.family == name
        ]
        parts.append("")
    parts.append("## Reading and compiling\n\nFound before or after the rules run.\n")
    parts.append("| rule | severity | a breach is |\n|---|---|---|")
    parts += [f"| `{name}` | {severity} | {_cell(text)} |" for name, (severity, text) in ALWAYS.items()]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
