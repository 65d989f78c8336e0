"""Equal lines that repeat are a loop, with the bits, the calls and the memory of straight lines."""

import weakref

import numpy as np
import pytest
import torch

from miniapps.partition import models
from miniapps.partition.capture.shapes import graph_of
from miniapps.partition.cuts.mesh import parse
from miniapps.partition.execution import loops
from miniapps.partition.execution.given import constant_of
from miniapps.partition.execution.lines import Lines
from miniapps.partition.execution.run import Program
from miniapps.partition.graphs.periods import Repeat, repeats
from miniapps.partition.planning.recipes import deck_of, plan_of
from miniapps.partition.pricing.dry import dry_step

FEW = {"samples": "4", "batch": "2", "tokens": "8", "width": "16", "feedforward": "32"}


def stepped(plan, mesh, level):
    """(loss, gradients, source text) of one rank's step on seeded values."""
    program = Program(None, plan, mesh, level)
    generator, values = torch.Generator().manual_seed(0), []
    for source in plan.sources:
        shape = source.tensor.shape
        drawn = torch.randint(0, 16, shape, generator=generator)
        drawn = drawn if "int" in source.tensor.dtype else drawn / 64 - 0.1
        values.append(
            program.part(source.tensor.name, constant_of(source) if source.kind == "constant" else drawn)
        )
    loss, gradients, _ = program(values)
    return [loss, *(g.clone() for g in gradients)], program.text


@pytest.mark.parametrize(
    ("name", "recipe", "level", "more"),
    [
        ("gpt", "dp+tp", "layout", {}),
        ("gpt", "zero", "none", {"micro_batches": "2", "batch": "1"}),
        ("bert", "tp", "layout", {}),
        ("gpt", "pp", "layout", {"micro_batches": "2", "stage": "2"}),
    ],
)
def test_a_loop_over_layers_has_the_bits_calls_and_memory_of_straight_lines(
    name, recipe, level, more, monkeypatch
):
    model = models.model(name)
    deck = deck_of(model, FEW | more | {"layers": "9"})
    carriers = model.RECIPES[recipe]
    plan = plan_of(model, deck, graph_of(model, deck), list(carriers))
    axes = list(dict.fromkeys(carriers.values()))
    one = parse(",".join(f"{axis}=1" for axis in axes), carriers, 1)
    two = parse(",".join(f"{axis}=2" for axis in axes), carriers, 2 ** len(axes))
    rolled, text = stepped(plan, one, level)
    priced = dry_step(plan, two, 0, level)
    monkeypatch.setattr(loops, "SAVED", 10**9)
    straight, long = stepped(plan, one, level)
    assert "for k" in text and "for k" not in long and text.count("\n") < long.count("\n") / 2
    assert all(torch.equal(a, b) for a, b in zip(rolled, straight, strict=True))
    assert dry_step(plan, two, 0, level) == priced


def test_a_program_of_more_layers_has_no_more_lines():
    lines = []
    model = models.model("gpt")
    carriers = model.RECIPES["tp"]
    for layers in (8, 16):
        deck = deck_of(model, FEW | {"layers": str(layers)})
        plan = plan_of(model, deck, graph_of(model, deck), list(carriers))
        lines.append(Program(None, plan, parse("model=1", carriers, 1), "layout").text.count("\n"))
    # Gradients are returned one by one, and the zeros of each lose their sign in a line of their own.
    assert lines[0] == lines[1]


class Number(float):
    """One that can be watched."""


def test_rounds_get_drop_and_leave_values_as_straight_lines_do(monkeypatch):
    def built():
        alive: list[int] = []
        numbers: list[weakref.ref] = []

        def make(*values):
            number = Number(sum(values) + 1)
            numbers.append(weakref.ref(number))
            alive.append(sum(ref() is not None for ref in numbers))
            return number

        lines = Lines({"make": make})
        given = [lines.variable() for _ in range(20)]
        x, kept = given[0], []
        for weight in given[1:]:
            y = lines.put(f"make({x}, {weight})", [x, weight])
            unread = lines.put(f"make({y}, 1)", [y])
            x = lines.put(f"make({y}, {given[0]})", [y, given[0]])
            kept.append(y)
        for y in reversed(kept):
            half = lines.put(f"make({y}, {x})", [y, x])
            lines.put(f"make({half})", [half])
            x = lines.put(f"make({half}, {y})", [half, y])
        assert unread not in kept
        text = lines.text(given, [x, kept[3], kept[-1]])
        return lines.compiled(text, "<test>")(tuple(range(20)), 1), alive, text

    found, alive, text = built()
    monkeypatch.setattr(loops, "SAVED", 10**9)
    same, straight, long = built()
    assert found == same and text.count("for k") == 2 and "for k" not in long
    assert max(abs(a - b) for a, b in zip(alive, straight, strict=True)) <= 1


def put(lines, names):
    return lines.put(f"make({', '.join(names)})", names)


def rounds_put(lines, rng, known):
    """Put the lines of random rounds: an operand is one of all rounds, of this or the last one, or any from before."""
    count, period = int(rng.integers(8, 40)), int(rng.integers(1, 5))
    kinds = [rng.choice(["same", "own", "last", "item"], rng.integers(1, 4)).tolist() for _ in range(period)]
    slots = [[(kind, int(rng.integers(0, o + 1 if kind == "own" else period))) for kind in of]
             for o, of in enumerate(kinds)]  # fmt: skip
    before, same = list(known), known[int(rng.integers(0, len(known)))]
    last = [before[k] for k in rng.integers(0, len(before), period)]
    for _ in range(count):
        own = []
        for of in slots:
            own.append(put(lines, [
                same if kind == "same" or (kind == "own" and at >= len(own))
                else own[at] if kind == "own" else last[at] if kind == "last" else before[rng.integers(0, len(before))]
                for kind, at in of
            ]))  # fmt: skip
        known += own
        last = own


def test_random_lines_have_the_results_of_straight_ones(monkeypatch):
    """Values of before a loop are read by lines before it, by some rounds, and by lines after it."""

    def built(seed):
        rng = np.random.default_rng(seed)
        lines = Lines({"make": lambda *values: hash(values)})
        given = [lines.variable() for _ in range(4)]
        known = list(given)
        for _ in range(rng.integers(1, 4)):
            known += [put(lines, [known[k] for k in rng.integers(0, len(known), 2)]) for _ in range(20)]
            rounds_put(lines, rng, known)
        outputs = [known[k] for k in rng.integers(0, len(known), 5)]
        text = lines.text(given, outputs)
        return lines.compiled(text, "<test>")((1, 2, 3, 4), 1), text

    found = [built(seed) for seed in range(100)]
    monkeypatch.setattr(loops, "SAVED", 10**9)
    assert [results for results, _ in found] == [built(seed)[0] for seed in range(100)]
    assert sum("for k" in text for _, text in found) > 50


def test_a_value_that_only_some_rounds_read_is_there_before_and_after_the_loop(monkeypatch):
    def built():
        lines = Lines({"make": lambda *values: hash(values)})
        given = [lines.variable() for _ in range(2)]
        made = [lines.put(f"make({given[k % 2]}, {k})", [given[k % 2]]) for k in range(40)]
        early = lines.put(f"make({made[-1]})", [made[-1]])
        rounds = [lines.put(f"len([{x}, {given[0]}])", [x, given[0]]) for x in made]
        late = lines.put(f"make({made[-1]}, {rounds[3]})", [made[-1], rounds[3]])
        text = lines.text(given, [early, late])
        return lines.compiled(text, "<test>")((1, 2), 1), text

    found, text = built()
    monkeypatch.setattr(loops, "SAVED", 10**9)
    assert found == built()[0] and "for k" in text


def test_constants_and_texts_may_differ_from_round_to_round():
    lines, seen = Lines({}), []
    for k in range(40):
        lines.put(f"{lines.constant(lambda name, k=k: seen.append((name, k)))}({'x' * k!r})", [])
    text = lines.text([], [])
    assert text.count("\n") < 8
    lines.compiled(text, "<test>")((), 1)
    assert seen == [("x" * k, k) for k in range(40)]


def test_repetitions_are_found_and_replace_enough():
    items = [*"ab", *"cdefgh" * 5, *"ij", *"kl" * 4, "m"]
    assert repeats(items, 20) == [Repeat(2, 6, 5)]
    assert repeats([*"xyz" * 9], 20) == [Repeat(0, 3, 9)]
    assert repeats([*"abcdefabcdef"], 2) == repeats([], 1) == []
