"""Straight-line Python: the written code is the running code, and values are freed after their last use."""

import weakref

from miniapps.partition.execution.lines import Lines


class Number(float):
    """One that can be watched."""


def test_a_function_computes_what_its_lines_say_and_deletes_what_it_does_not_return():
    lines = Lines({})
    a, b = lines.variable(), lines.variable()
    total = lines.put(f"{a} + {b} * number", [a, b])
    twice = lines.put(f"2 * {total}", [total])
    text = lines.text([a, b], [total, twice])
    assert lines.compiled(text, "<test>")((1, 2), 10) == (21, 42)
    assert [line.strip() for line in text.splitlines() if "del" in line] == [f"del {a}, {b}"]


def test_an_object_has_one_name_and_stays_from_call_to_call():
    lines = Lines({})
    limit = [3]
    assert lines.constant(limit) == lines.constant(limit) != lines.constant([3])
    result = lines.put(f"len({lines.constant(limit)})", [])
    function = lines.compiled(lines.text([], [result]), "<test>")
    assert function((), 1) == function((), 2) == (1,)


def test_a_value_is_gone_as_soon_as_its_last_reader_is_done():
    alive = []
    numbers: list[weakref.ref] = []

    def make(value):
        number = Number(value)
        numbers.append(weakref.ref(number))
        return number

    lines = Lines({"make": make, "look": lambda: alive.append([ref() is not None for ref in numbers])})
    first = lines.put("make(1)", [])
    second = lines.put(f"make({first} + 1)", [first])
    lines.put("look()", [])
    lines.compiled(lines.text([], [second]), "<test>")((), 1)
    assert alive == [[False, True]]
