"""Calls of two builds of one program, matched: `miniapps.trace.builds`."""

import random

from miniapps.trace.builds import as_in

FIRST = [
    "MPI_Bcast at main+0x1e8",
    "total:MPI_Allreduce at main+0xda8",
    "added:MPI_Allreduce at main+0xda8 by rank 0 of 3",
    "total:MPI_Allreduce at main+0x900",
    "global:MPI_Bcast at main+0x1e8, 1 float64",
    "time",
]


def test_calls_are_matched_in_the_order_in_which_they_came():
    """The second sum lies before the first one in both builds' code."""
    other = [
        name.replace("+0x1e8", "+0x2").replace("+0xda8", "+0xaa").replace("+0x900", "+0xbb") for name in FIRST
    ]
    renamed = as_in(FIRST, other)
    assert [renamed.get(name, name) for name in other] == FIRST


def test_one_build_is_left_as_it_is():
    """A run that came to other calls of the same binary is no other build."""
    assert as_in(FIRST, ["total:MPI_Allreduce at main+0x900", "MPI_Bcast at main+0x77"]) == {}


def test_a_function_with_another_number_of_calls_is_left_out():
    other = ["MPI_Bcast at main+0x2", "total:MPI_Allreduce at main+0xaa"]
    assert as_in(FIRST, other) == {"MPI_Bcast at main+0x2": "MPI_Bcast at main+0x1e8"}


def test_places_of_callers_names_with_spaces_and_lines():
    first = [
        "MPI_Reduce at add(double, int)+0x1f from main+0x20",
        "MPI_Reduce at dot (cg.c:57) from main (cg.c:9)",
    ]
    other = [
        "MPI_Reduce at add(double, int)+0x3f from main+0x40",
        "MPI_Reduce at dot (cg.c:57) from main (cg.c:9)",
    ]
    assert as_in(first, other) == {other[0]: first[0]}


def test_no_name_is_given_twice():
    """Whatever is drawn: names of one run stay different."""
    numbers = random.Random(1)
    for _ in range(300):
        draw = [
            f"{numbers.choice(('total:', 'added:', ''))}MPI_{numbers.choice(('Reduce', 'Scan'))} at "
            f"{numbers.choice('fg')}+0x{numbers.randrange(6):x}{numbers.choice(('', ' from h+0x1', ' by rank 0 of 2'))}"
            for _ in range(numbers.randrange(1, 9))
        ]
        first, other = list(dict.fromkeys(draw[::2])), list(dict.fromkeys(draw[1::2]))
        renamed = as_in(first, other)
        assert len({renamed.get(name, name) for name in other}) == len(other), (first, other)
