"""Equal lines that repeat are a loop, with the bits, the calls and the memory of straight lines."""

import weakref

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
