"""The learning of the weights of `analysis ask`, and its cases."""

import json
from dataclasses import replace

import numpy as np

from analysis.ask import rank
from benchmarks.analysis.ask import (
    DIRECT,
    PRIOR,
    QUESTION,
    TITLES,
    Record,
    accuracy,
    learn,
    orders,
    prior,
    wilson,
)
from benchmarks.analysis.ask_cases import HELD_OUT, KINDS, fits, titles, write_case

FILLED = {"show": True, "lint": True, "scaling": False}


def cases(fact, right, count=4):
    return [Record("kind", "crash", False, [fact, "common"], right, FILLED, "killed")] * count


def test_facts_that_go_with_a_command_are_learned():
    known = cases("ended early", "show") + cases("rule: unstable-times", "lint")
    ways = orders(known, learn(known, rank.Weights(0.0, 0.0, {})))
    row = accuracy(known, ways["probes alone"])
    assert (row["top_1"], row["slots"]) == (8, 8)
    assert accuracy(known, ways["always the commonest"])["top_1"] == 4


def test_where_nothing_is_known_weights_stay_where_they_were_set():
    centre = rank.Weights(0.0, 0.0, {"show": {"prior": -1.5, "never seen": 2.5}})
    assert learn(cases("a", "show"), centre).facts["show"]["never seen"] == 2.5


def test_words_that_go_with_a_command_are_learned():
    known = [
        Record("kind", QUESTION, False, ["a"], right, {"show": True, "lint": True}, words)
        for right, words in (("show", "why did it crash"), ("lint", "is the benchmark sound"))
    ]
    table = learn(known, rank.Weights(0.0, 0.0, {}))
    assert table.telling > 0 and accuracy(known, orders(known, table)["all"])["top_1"] == 2


def test_direct_questions_are_of_commands_that_there_are_and_in_one_set_alone():
    from analysis.ask.templates import TEMPLATES

    both = json.loads(DIRECT.read_text())
    training, test = (
        {words for own in both[split].values() for words in own} for split in ("training", "test")
    )
    assert set(both["training"]) == set(both["test"]) <= set(TEMPLATES) and not training & test


def test_wrong_slots_are_counted():
    known = [replace(one, right="scaling") for one in cases("a", "show")]
    row = accuracy(known, lambda one: ["scaling", "show"])
    assert (row["top_1"], row["slots"], row["slots_of"]) == (4, 0, 4)


def test_no_project_and_no_title_is_in_both_sets():
    both = titles(TITLES)
    for place in (0, 1):
        training, test = ({row[place] for rows in both[split].values() for row in rows} for split in both)
        assert not training & test
    assert set(both["training"]) | {"nan"} == set(both["test"])


def test_slots_are_right_whatever_the_order_of_runs():
    slots = {"runs": ["b", "a"], "step": 3, "block": 5}
    assert fits(slots, {"runs": ["a", "b"], "block": {4, 5}})
    assert not fits(slots, {"step": 4}) and not fits(slots, {"rank": 0}) and not fits(slots, {"runs": ["a"]})


def test_intervals_are_those_of_wilson():
    low, high = wilson(9, 10)
    z, p, n = 1.959964, 0.9, 10
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert np.allclose([low, high], [middle - half, middle + half], atol=1e-6)


def test_a_case_is_the_same_again(tmp_path):
    one, again = (write_case(tmp_path / name, "bitflip", 3, 1) for name in "ab")
    assert {k: v for k, v in one.slots.items() if k != "runs"} == {
        k: v for k, v in again.slots.items() if k != "runs"
    }
    assert len(one.runs) == len(again.runs) and set(HELD_OUT) <= set(KINDS)


def test_weights_set_by_hand_are_of_commands_that_there_are():
    from analysis.ask.templates import TEMPLATES

    assert PRIOR.exists() and set(prior().facts) <= set(TEMPLATES)
