"""Calls in turn: every one in every round, the first round apart, and what is done is told in between."""

import re

from benchmarks.harness.turns import in_turn
from kernels import progress


def test_every_variant_is_called_in_every_round_in_another_order_and_the_first_does_not_count():
    called = []
    variants = {name: lambda name=name: called.append(name) or len(called) for name in "abc"}
    results = in_turn(variants, 2)
    assert "".join(called) == "abcbcacab"
    assert results == {"a": [6, 8], "b": [4, 9], "c": [5, 7]}


def test_long_rounds_tell_what_is_done_and_left(monkeypatch, capsys):
    times = iter(range(0, 10**6, 12))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(times)))
    in_turn({"a": int, "b": int}, 1)
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"\d+ s.*", "", line) for line in lines] == [
        f"benchmark: round {done}, "
        for done in ("0 of 1, a, 0%", "0 of 1, b, 25%", "1 of 1, b, 50%", "1 of 1, a, 75%")
    ]
