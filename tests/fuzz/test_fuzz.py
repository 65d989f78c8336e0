"""A minute of the fuzzer: recorded cases of every kind, and every case that ever broke the criterion."""

import json
import random
from pathlib import Path

import pytest

from analysis import commands
from tests.fuzz import base, pool
from tests.fuzz.kinds import KINDS
from tests.fuzz.kinds_self import HOW
from tests.fuzz.pool import play
from tests.fuzz.sandbox import Sandbox

RECORDED = json.loads((Path(__file__).parent / "seeds.json").read_text())


def played(cases):
    """The answers to `cases`, played one after the other."""
    answers = []
    play(iter(cases), 1, answers.append)
    assert len(answers) == len(cases)
    return answers


def test_every_command_that_is_played_is_one_of_the_analysis():
    played = {
        base.words(command.name, Sandbox(Path("case")), ("a", "b"), "a")[0] for command in base.COMMANDS
    }
    assert played <= set(commands.COMMANDS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_recorded_cases_keep_to_the_criterion():
    cases = [tuple(case.split(":")) for case in RECORDED["regressions"]]
    assert set(RECORDED["cases"]) == {kind for kind in KINDS if KINDS[kind].weight}
    for kind, count in RECORDED["cases"].items():
        cases += [(kind, seed) for seed in range(RECORDED["first"], RECORDED["first"] + count)]
    answers = played([(kind, int(seed)) for kind, seed in cases])
    broken = {f"{a['kind']}:{a['seed']}": a["violated"] for a in answers if a["violated"]}
    assert not broken
    assert {a["outcome"] for a in answers} >= {
        "same",
        "damaged",
        "free",
        "others",
    }  # it does reach all of these


@pytest.mark.slow
def test_the_fuzzer_sees_every_way_to_break_the_criterion(monkeypatch):
    monkeypatch.setattr(pool, "CASE_S", 3.0)
    seeds = {}
    for seed in range(10_000):
        seeds.setdefault(random.Random(f"self:{seed}").choice(HOW), seed)
    assert set(seeds) == set(HOW)
    answers = played([("self", seeds["nothing"]), *(("self", seeds[how]) for how in HOW)])
    violations = dict(zip(HOW, (answer["violated"] for answer in answers[1:]), strict=True))
    assert not violations.pop("nothing")
    assert all(violations.values()), violations
    for how, word in (("hangs", "no end"), ("dies", "code 3"), ("raises", "a defect"), ("takes memory", "MiB"),
                      ("reads outside", "read outside"), ("removes outside", "removed")):  # fmt: skip
        assert word in violations[how], violations[how]
