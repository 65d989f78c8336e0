"""The rules for words: no page breaks one, and each rule finds what it is for."""

import pytest

from tools.words import RULES, findings, pages, prose


def test_no_page_breaks_a_rule():
    texts = pages()
    assert len(texts) > 50 and "docs/tutorials/try.md" in texts
    assert findings(texts) == []


@pytest.mark.parametrize(
    "words",
    [
        "it comes to 3 s", "two told apart", "blocks dealt to ranks", "that of which", "those which", "whoever adds",
        "it is said", "ranks were told", "as good as these", "none of ours", "what was recorded", "had better wait",
        "it lies off", "one's own",
    ],
)  # fmt: skip
def test_each_rule_finds_what_it_is_for(words):
    assert len(findings({"page": words})) == 1


def test_every_rule_is_tried():
    tried = test_each_rule_finds_what_it_is_for.pytestmark[0].args[1]
    found = " ".join(findings({"page": "\n".join(tried)}))
    assert all(instead in found for instead in RULES.values())


def test_code_is_no_prose():
    text = "a\n```\nwhoever\n```\n    whoever\n`whoever` b\n# What was said\n"
    assert [number for number, _ in prose(text)] == [1, 6] and findings({"page": text}) == []
