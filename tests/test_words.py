"""The rules for words: no page and no room that is held to them breaks one, and each rule finds its phrase."""

import pytest

from tools.words import RULES, code, findings, pages, prose


def test_no_page_breaks_a_rule():
    texts = pages()
    assert len(texts) > 50 and "docs/tutorials/try.md" in texts
    assert findings(texts) == []


def test_no_room_of_code_breaks_a_rule():
    texts = code()
    assert "tools/site.py" in texts
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


def test_code_on_pages_is_no_prose():
    text = "a\n```\nwhoever\n```\n    whoever\n`whoever` b\n# What was said\n"
    assert [number for number, _ in prose("page.md", text)] == [1, 6] and findings({"page.md": text}) == []


def test_of_python_it_reads_docstrings_comments_and_texts():
    text = '"""Whoever\n\n    reads."""\nwhoever = 1  # whoever\nraise E(f"no {whoever} here", "whoever")\n'
    assert [found.split(":")[1] for found in findings({"a.py": text})] == ["1", "4", "5"]


def test_of_cpp_it_reads_comments_and_texts():
    text = '// whoever\nint whoever; /* a\nwhoever */ f("whoever"); g("for whoever\\n");\n'
    assert [found.split(":")[1] for found in findings({"a.cpp": text})] == ["1", "3", "3"]
