"""Measures how often `analysis ask` names the right command, on faulty runs of 27 kinds.

    python -m benchmarks.analysis.ask --json benchmarks/results/ask.json           # some minutes
    python -m benchmarks.analysis.ask --weights analysis/ask/weights.json          # learn the table again

Every kind of `benchmarks.analysis.ask_cases` names the right command, and its runs, step, block, rank or factor. Words
are titles of public issues (`ask_titles.json`), split by project: no project has titles in both sets. The weights are
learned from the cases of seed 1 without the kinds HELD_OUT, and tested on the cases of seed 3 with them. Each set also
has direct questions (`ask_questions.json`), asked with the facts of cases in which their command can be filled in. For
comparison: text alone (the most similar description), words of the training titles alone, probes alone, and always the
three most common commands. Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis.ask import rank
from analysis.ask.templates import TEMPLATES, description
from benchmarks.analysis.ask_cases import (
    HELD_OUT,
    KINDS,
    Case,
    fits,
    is_held_out,
    real_cases,
    titles,
    write_case,
)
from benchmarks.harness.results import add_quiet, machine, save

TITLES, PRIOR, DIRECT = (
    Path(__file__).with_name(f"ask_{name}.json") for name in ("titles", "prior", "questions")
)
TRAINING, TEST = 1, 3  # seeds; seed 2 was used during development
PENALTY = 0.02  # on the squares of weights, per case; chosen before any test
NAMED = 3
SCENES = 3  # cases whose facts a direct question of the test is asked with; a question of the training has one case
QUESTION = "a question"  # the symptom of direct questions


@dataclass(frozen=True)
class Record:
    """A case: its `kind`, `symptom`, whether it is `held_out`, its `facts`, the `right` template, `filled` ({template:
    whether its slots are right} of all commands that can be filled in), and the `words`."""

    kind: str
    symptom: str
    held_out: bool
    facts: list[str]
    right: str
    filled: dict[str, bool]
    words: str = ""


def record(case: Case) -> Record:
    """The facts that the probes find in a case, and the commands that can be filled in."""
    from analysis.ask.probes import evidence
    from analysis.ask.templates import questions
    from analysis.load.frames import load

    known = evidence(load(case.runs, copies=True))
    filled = {each.template: fits(each.slots, case.slots) for each in questions(known)}
    return Record(case.kind, case.symptom, is_held_out(case), sorted(known.facts), case.template, filled)


def prior() -> rank.Weights:
    """The weights of facts set by hand before any case was written; words have no weight."""
    return rank.Weights(0.0, 0.0, json.loads(PRIOR.read_text()))


def synthetic(root: Path, seed: int, task: tuple[str, int]) -> Record:
    """The record of one case of the synthetic application."""
    name, number = task
    return record(write_case(root / f"{name}-{number}", name, seed, number))


def records(root: Path, seed: int, each: int, hows: tuple[str, ...], processes: int) -> list[Record]:
    """The records of all cases of `seed`, `each` of every kind; held-out kinds are only in the test."""
    held = seed == TEST
    tasks = [(name, k) for name in KINDS for k in range(each) if held or name not in HELD_OUT]
    with ProcessPoolExecutor(processes) as pool:
        known = list(pool.map(partial(synthetic, root / "made-up", seed), tasks))
    if hows:
        known += [record(case) for case in real_cases(root / "real", seed, 1, hows, held)]
    return known


def worded(known: Iterable[Record], split: str, seed: int) -> list[Record]:
    """`known`, each with a random title of its symptom from the split `split`."""
    rng, lists = np.random.default_rng(seed), titles(TITLES)[split]
    return [
        Record(**vars(one) | {"words": lists[one.symptom][rng.integers(len(lists[one.symptom]))][1]})
        for one in known
    ]


def direct(known: list[Record], split: str, seed: int) -> list[Record]:
    """The direct questions of the split `split`, with the facts of cases of `known` in which their command can be
    filled in: one case each for training, SCENES for the test."""
    rng, asked = np.random.default_rng(seed), json.loads(DIRECT.read_text())[split]
    found = []
    for template, questions in asked.items():
        scenes = [one for one in known if template in one.filled]
        for words in questions:
            drawn = rng.permutation(len(scenes))[: SCENES if split == "test" else 1]
            found += [
                Record(**vars(scenes[i]) | {"symptom": QUESTION, "right": template, "words": words})
                for i in drawn
            ]
    return found


def learn(known: list[Record], centre: rank.Weights, penalty: float = PENALTY) -> rank.Weights:
    """Learns weights by multinomial logistic regression over the commands that can be filled in. Weights of facts have
    a penalty on the squares of their differences from `centre`; weights of words have none."""
    from scipy.optimize import minimize

    table = centre.facts
    names = sorted({template for one in known for template in one.filled} | set(table))
    there = {fact for one in known for fact in one.facts} | {fact for own in table.values() for fact in own}
    facts = [rank.PRIOR, *sorted(there - {rank.PRIOR})]
    middle = np.array([[table.get(name, {}).get(fact, 0.0) for fact in facts] for name in names])
    known = [one for one in known if one.right in one.filled]
    x = np.array([[1.0, *(float(fact in one.facts) for fact in facts[1:])] for one in known])
    there_is = np.full((len(known), len(names)), -np.inf)
    words = np.zeros((2, len(known), len(names)))
    for i, one in enumerate(known):
        for template in one.filled:
            at = i, names.index(template)
            there_is[at] = 0.0
            words[0][at] = rank.likeness(one.words, description(template))
            words[1][at] = rank.told(one.words, template)
    right = np.array([names.index(one.right) for one in known])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights, of_words = flat[2:].reshape(len(names), len(facts)), flat[:2]
        scores = x @ weights.T + np.tensordot(of_words, words, 1) + there_is
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        of_right = chances[np.arange(len(known)), right]
        wrong = chances.copy()
        wrong[np.arange(len(known)), right] -= 1
        away = weights - middle
        value = -np.log(of_right).mean() + penalty * (away**2).sum() / 2
        by_words = np.tensordot(words, wrong, 2) / len(known)
        return value, np.concatenate([by_words, (wrong.T @ x / len(known) + penalty * away).ravel()])

    start = np.concatenate([[centre.likeness, centre.telling], middle.ravel()])
    end = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    weights = end.x[2:].reshape(len(names), len(facts))
    learned = {
        name: {fact: round(float(w), 3) for fact, w in zip(facts, own, strict=True) if abs(w) >= 0.005}
        for name, own in zip(names, weights, strict=True)
    }
    return rank.Weights(*(round(float(w), 3) for w in end.x[:2]), learned)


Order = Callable[[Record], list[str]]


def orders(training: list[Record], table: rank.Weights) -> dict[str, Order]:
    """{method: function that orders the commands for a record, most likely first}."""
    common = [name for name, _ in Counter(one.right for one in training).most_common()]
    by_title = [(one.words, one.right) for one in training]

    def by(score: Callable[[Record, str], float], one: Record) -> list[str]:
        return sorted(one.filled, key=lambda template: (-score(one, template), template))

    def like_titles(one: Record, template: str) -> float:
        return max(
            (rank.likeness(one.words, words) for words, right in by_title if right == template), default=0.0
        )

    by_hand = prior()
    return {
        "all": partial(by, lambda one, name: rank.score(name, one.facts, one.words, table)),
        "weights set by hand": partial(by, lambda one, name: rank.score(name, one.facts, one.words, by_hand)),
        "probes alone": partial(by, lambda one, name: rank.score(name, one.facts, "", table)),
        "text alone": lambda one: sorted(
            TEMPLATES, key=lambda name: (-rank.likeness(one.words, description(name)), name)
        ),
        "text alone, of those that can be filled in": partial(
            by, lambda one, name: rank.likeness(one.words, description(name))
        ),
        "training titles alone, of those that can be filled in": partial(by, like_titles),
        "commonest of those that can be filled in": partial(
            by, lambda one, name: -common.index(name) if name in common else -len(common)
        ),
        "always the commonest": lambda one: common,
    }


def wilson(count: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a proportion (Wilson 1927)."""
    from scipy.stats import binomtest

    interval = binomtest(count, of).proportion_ci(0.95, "wilson")
    return float(interval.low), float(interval.high)


def accuracy(test: list[Record], order: Order) -> dict[str, Any]:
    """Counts of cases in which the right command is first, or among the first three; and, of the latter, those with
    right slots."""
    places = [order(one) for one in test]
    first = [named[:1] == [one.right] for one, named in zip(test, places, strict=True)]
    third = [one.right in named[:NAMED] for one, named in zip(test, places, strict=True)]
    slots = [one.filled.get(one.right, False) for one, among in zip(test, third, strict=True) if among]
    row: dict[str, Any] = {"cases": len(test)}
    for name, hits in (("top_1", first), ("top_3", third), ("slots", slots)):
        row |= {name: sum(hits), f"{name}_of": len(hits)}
        row[f"{name}_interval"] = list(wilson(sum(hits), len(hits))) if hits else None
    return row


def in_turn(training: list[Record], test: list[Record]) -> list[Record]:
    """The cases of `test` whose command other kinds of `training` have too, with their commands ordered by weights
    learned from all other kinds."""
    ordered = []
    for kind in dict.fromkeys(one.kind for one in test):
        own = [one for one in test if one.kind == kind]
        others = [one for one in training if one.kind != kind]
        if own[0].right in {one.right for one in others}:
            best = orders(others, learn(others, prior()))["all"]
            ordered += [
                Record(**vars(one) | {"filled": {name: one.filled[name] for name in best(one)}})
                for one in own
            ]
    return ordered


def results(training: list[Record], test: list[Record], table) -> tuple[list[dict], list[dict]]:
    """(a row for each method and part of the test, a row for each kind)."""
    asked = [one for one in test if one.symptom == QUESTION]
    test = [one for one in test if one.symptom != QUESTION]
    parts = {"all": test, "kinds held out": [one for one in test if one.held_out],
             "real runs": [one for one in test if one.kind.startswith("real ")]}  # fmt: skip
    ways = orders(training, table)
    rows = [{"way": way, "of": "all", **accuracy(test, order)} for way, order in ways.items()]
    for way, order in ways.items():  # the slots of a case are those of its own command
        told = accuracy(asked, order)
        rows.append({"way": way, "of": QUESTION} | {k: v for k, v in told.items() if "slots" not in k})
    rows += [
        {"way": "all", "of": part, **accuracy(own, ways["all"])}
        for part, own in parts.items()
        if part != "all" and own
    ]
    without = in_turn(training, test)
    rows.append(
        {"way": "all", "of": "each kind held out in turn", **accuracy(without, lambda one: list(one.filled))}
    )
    kinds = []
    for kind in dict.fromkeys(one.kind for one in test):
        own = [one for one in test if one.kind == kind]
        told = Counter(ways["all"](one)[0] for one in own)
        kinds.append(
            {"kind": kind, "right": own[0].right, **accuracy(own, ways["all"]), "told_first": dict(told)}
        )
    return rows, kinds


def main(argv=None) -> None:
    """Writes the cases, learns, tests, prints, saves."""
    parser = argparse.ArgumentParser("python -m benchmarks.analysis.ask", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--training", type=int, default=4, help="cases of each kind (%(default)s)")
    parser.add_argument("--test", type=int, default=11, help="cases of each kind (%(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--no-real", action="store_true", help="without real runs, which need mpirun")
    parser.add_argument(
        "--records", type=Path, help="file of the probes' results: written, or used if it exists"
    )
    parser.add_argument("--weights", type=Path, help="write the table of weights to this file")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    add_quiet(parser)
    options = parser.parse_args(argv)
    where = machine()
    sets = {"training": (TRAINING, options.training, ("messages",)),
            "test": (TEST, options.test, ("messages", "ranks"))}  # fmt: skip
    known: dict[str, list[Record]] = {}
    if options.records and options.records.exists():
        stored = json.loads(options.records.read_text())
        known = {name: [Record(**one) for one in own] for name, own in stored.items()}
    else:
        with tempfile.TemporaryDirectory() as scratch:
            for name, (seed, each, hows) in sets.items():
                hows = () if options.no_real else hows
                known[name] = records(Path(scratch) / name, seed, each, hows, options.processes)
        if options.records:
            options.records.write_text(
                json.dumps({name: [vars(one) for one in own] for name, own in known.items()})
            )
    training, test = (
        worded(own, name, sets[name][0]) + direct(own, name, sets[name][0]) for name, own in known.items()
    )
    table = learn(training, prior())
    rows, kinds = results(training, test, table)
    for row in rows:
        shares = [f"{name} {row[name]}/{row[f'{name}_of']} {_interval(row[f'{name}_interval'])}"
                  for name in ("top_1", "top_3", "slots") if name in row]  # fmt: skip
        print(f"{row['way']}, {row['of']}: {'; '.join(shares)}")
    kinds_of = {one.kind for one in known["training"]}
    about = (
        f"Learned by python -m benchmarks.analysis.ask from {len(known['training'])} cases of {len(kinds_of)} kinds "
        f"without {' and '.join(HELD_OUT)}, and {len(training) - len(known['training'])} direct questions; "
        f"penalty {PENALTY}."
    )
    if options.weights:
        lines = [f"  {json.dumps(name)}: {json.dumps(own)}" for name, own in table.facts.items()]
        text = ",\n".join(lines)
        options.weights.write_text(
            f'{{\n "about": {json.dumps(about)},\n "likeness": {table.likeness},\n "telling": {table.telling},\n'
            f' "facts": {{\n{text}\n }}\n}}\n'
        )
    if options.json:
        save(
            {"machine": where, "about": about, "penalty": PENALTY, "accuracy": rows, "kinds": kinds},
            options.json,
        )


def _interval(interval) -> str:
    return "" if interval is None else f"({interval[0]:.1%} to {interval[1]:.1%})"


if __name__ == "__main__":
    main()
