"""Ranks the commands that may answer a question, by the facts of the runs and the words of the question.

The score of a command is a sum of three parts:

- evidence: its prior, and a weight for each fact that holds in the runs.
- likeness: a weight times the cosine between the character 3- to 5-grams of the question and of the command's
  description.
- telling words: a weight times the share of the question's words that occur in the command's description. A word such
  as `tampered`, which occurs in few descriptions, counts more than a word that occurs in many.

This is a multinomial logistic regression. Its weights are in `weights.json`:
`python -m benchmarks.analysis.ask --weights` learns them from titles of issues and from direct questions.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.ask.probes import Evidence
from analysis.ask.templates import TEMPLATES, Question, description, questions

WEIGHTS = Path(__file__).with_name("weights.json")
STEM = 5  # words with the same first characters are equal: differ, differs, different
FEWEST_LETTERS = 3
# Words that occur in questions of any kind.
COMMON = frozenset(
    """
    about again all and any app are bug can come data did does each error every for from get gives good has
    have help how its know make may mean mine mpi much must not now number off one only our out problem
    program question run runs say says see should show some than that the their them then there these they
    this through time two use value values want was well were what when where which while who why will with
    wrong would you your
    """.split()  # noqa: SIM905 - a list of so many strings is no help
)
GRAMS = (3, 4, 5)
LONGEST = 4000  # characters of a question that are read
PRIOR = "prior"  # the key of a command's prior among the weights of its facts
UNKNOWN = -1.5  # prior of a command that was not in the training set, typical of the others


@dataclass(frozen=True)
class Weights:
    """The weights of a score: of the cosine, of the share of telling words, and {template: {fact or PRIOR: weight}}."""

    likeness: float
    telling: float
    facts: Mapping[str, Mapping[str, float]]


@cache
def learned() -> Weights:
    """Returns the weights in `weights.json`."""
    stored = json.loads(WEIGHTS.read_text())
    return Weights(stored["likeness"], stored["telling"], stored["facts"])


def ranked(known: Evidence, words: str) -> list[tuple[Question, float]]:
    """All commands that can be filled in, with their probabilities, the likeliest first.

    Of commands with the same arguments only the likeliest stays."""
    asked, used = questions(known), learned()
    scores = [score(question.template, known.facts, words, used) for question in asked]
    chances = softmax(scores)
    best: dict[tuple[str, ...], tuple[Question, float]] = {}
    order = sorted(range(len(asked)), key=lambda i: (-chances[i], asked[i].template))
    for i in order:
        best.setdefault(asked[i].argv, (asked[i], chances[i]))
    return list(best.values())


def score(template: str, facts: Iterable[str], words: str, used: Weights) -> float:
    """The unnormalised logarithm of the probability of a template."""
    own = used.facts.get(template)
    by_evidence = UNKNOWN if own is None else own.get(PRIOR, 0.0) + sum(own.get(fact, 0.0) for fact in facts)
    by_words = used.likeness * likeness(words, description(template)) + used.telling * told(words, template)
    return by_evidence + by_words


def telling(words: str) -> dict[str, float]:
    """{stem: weight} of the words of a question that occur in descriptions of commands; empty if none does.

    The weight is 1 over the number of these commands."""
    stems = _stems(words)
    counts = {stem: sum(stem in _stems(description(name)) for name in TEMPLATES) for stem in stems}
    return {stem: 1.0 / n for stem, n in counts.items() if n}


def told(words: str, template: str) -> float:
    """The share, 0 to 1, of the weights of `telling` whose words occur in the description of this command."""
    stems = telling(words)
    own = sum(weight for stem, weight in stems.items() if stem in _stems(description(template)))
    return own / sum(stems.values()) if stems else 0.0


def softmax(scores: Sequence[float]) -> list[float]:
    """The probabilities of `scores`."""
    most = max(scores, default=0.0)
    parts = [math.exp(each - most) for each in scores]
    return [part / sum(parts) for part in parts]


def likeness(one: str, other: str) -> float:
    """The cosine between the counts of character 3- to 5-grams of two texts, 0 to 1; 0 if one text has none."""
    a, b = _grams(one), _grams(other)
    size = math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
    return sum(n * b[gram] for gram, n in a.items() if gram in b) / size if size else 0.0


@cache
def _stems(text: str) -> frozenset[str]:
    words = re.findall(r"[^\W\d_]+", text[:LONGEST].casefold())
    return frozenset(word[:STEM] for word in words if len(word) >= FEWEST_LETTERS and word not in COMMON)


@cache
def _grams(text: str) -> Counter[str]:
    plain = f" {' '.join(text[:LONGEST].casefold().split())} "
    if not plain.strip():
        return Counter()
    return Counter(plain[i : i + n] for n in GRAMS for i in range(len(plain) - n + 1))
