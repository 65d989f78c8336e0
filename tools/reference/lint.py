"""The rules of `fpna lint`, from the functions that are the rules."""

from __future__ import annotations

from analysis import studies
from analysis.lint.rules import RULES, name_of
from tools.reference.markdown import code, docstring, page, table


def pages() -> dict[str, str]:
    """{path: page}."""
    rules = [*RULES, *(rule for name in studies.names() for rule in studies.study(name).rules)]
    rows = [(code(name_of(rule)), docstring(rule).splitlines()[0]) for rule in rules]
    return {
        "reference/lint.md": page(
            "Rules of careful benchmarking",
            "`fpna lint` says where runs break a rule; the numbers are those of Hoefler and Belli (SC'15). "
            "[Lint](../how-to/lint.md) shows how the command reports findings.",
            table(("rule", "fires where"), rows),
        )
    }
