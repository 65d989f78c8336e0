"""A library whose bits follow one condition, put there on purpose: `dependences` names it and no other.

Arguments: lengths of vectors."""

import sys
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from kernels.allreduce.instruments.bitwise import timed
from kernels.allreduce.instruments.dependence import dependences
from kernels.allreduce.instruments.libraries import of_mpi
from kernels.guarantees import ChoiceError

comm = MPI.COMM_WORLD
plain = of_mpi(comm)


def spoilt(follows):
    """The MPI library, with the last bit of its sums changed where `follows(n, way)` says so."""

    def opens(n, dtype, way):
        opened = plain.opens(n, dtype, way)

        def result():
            total = opened.result()
            if follows(n, way):
                total = np.nextafter(total, np.inf, dtype=dtype)
            return total

        return replace(opened, result=result)

    return replace(plain, opens=opens)


def before_mpi_4(n, dtype, way):
    if way.call == "persistent":
        raise ChoiceError("this MPI library has none")
    return plain.opens(n, dtype, way)


class Calls:
    """Every second call is another."""

    def __init__(self):
        self.made = 0

    def __call__(self, n, way):
        self.made += 1
        return self.made % 2


def on(library, n, dtype):
    return {each.on: each.differ for each in dependences(library, n, dtype) if each.differ}


for n in map(int, sys.argv[1:]):
    for dtype in ("float64", "float32"):
        natural = on(plain, n, dtype)
        for condition, follows in {
            "call in place": lambda n, way: way.in_place,
            "call nonblocking": lambda n, way: way.call == "nonblocking",
            "alignment": lambda n, way: way.offset,
            "rank that holds the sum": lambda n, way: comm.rank == comm.size - 1,
        }.items():
            found = on(spoilt(follows), n, dtype)
            changed = {on for on in found if found[on] != natural.get(on)}
            assert changed == {condition}, (n, dtype, condition, found, natural)
        assert "repeated call" in on(spoilt(Calls()), n, dtype)
        if comm.rank == 0:
            print(n, dtype, " ".join(sorted(natural)))
    assert timed(plain, n, "float64", calls=20).distinct == 1
    fickle = timed(spoilt(Calls()), n, "float64", calls=20)
    assert (fickle.calls, fickle.distinct) == (20, 2) and fickle.busbw > 0

tried, old = (
    {each.on for each in dependences(library, 3, "float64")}
    for library in (plain, replace(plain, opens=before_mpi_4))
)
assert tried - old == {"call persistent"} and len(old) > 8
