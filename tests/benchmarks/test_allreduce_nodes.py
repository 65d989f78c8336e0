"""The figures over several nodes: the ordering that counts at each size, and the bound."""

from types import SimpleNamespace

import pytest

from benchmarks.allreduce import nodes
from benchmarks.allreduce.nodes import EXACT, FIXED_ORDER, MIB, SCALARS, judged, of_library

ABOUT = ("mpich", 8)


def test_the_best_ordering_counts_at_each_size_and_the_worst_size_of_all():
    launches = [{("a", 1): r, ("b", 1): 3.0, ("a", 2): 9.0, ("b", 2): 1.5 * r} for r in (1.0, 1.1, 0.9)]
    row = judged("what", ("a", "b"), launches, 1.4, ABOUT)
    assert (row["by"], row["worst at"], row["met"]) == ("b", "2 bytes", "no")
    assert row["ratio"] == {"median": 1.5, "min": pytest.approx(1.35), "max": pytest.approx(1.65), "n": 3}
    assert judged("what", ("a", "b"), launches, 1.5, ABOUT)["met"] == "yes"
    assert judged("what", ("a",), launches, 1.5, ABOUT)["worst at"] == "2 bytes"


def launched(seconds):
    """A launch in which every ordering takes seconds(name, bytes), and the library 0.2 s."""

    def job(cluster, mpi, names, dtype, sizes, factor, asked):
        rows = [
            {
                "ordering": name,
                "bytes": b,
                "median": seconds(name, b),
                "ratio": {"median": seconds(name, b) / 0.2},
            }
            for name in names
            for b in (sizes[0], sizes[1])
        ]
        return {"rows": [*rows, {"ordering": "bare", "bytes": MIB, "median": 0.2, "ratio": None}]}

    return job


def test_times_are_set_against_the_library_the_bound_and_each_other(monkeypatch):
    # 2 * 3/4 * 1 MiB at 1 Gbit/s are 12.6 ms, of 16 MiB 201 ms.
    def seconds(name, nbytes):
        base = 1.2 * 1.5 * nbytes * 8 / 1e9
        return {"two-level": base, "two-level in exact over packed": 1.3 * base}.get(name, 10 * base)

    monkeypatch.setattr(nodes, "job", launched(seconds))
    asked = SimpleNamespace(nodes=4, ranks_per_node=2, link="1gbit", launches=2)
    library, bound, fixed, scalars = of_library(None, "mpich", asked)
    assert library["by"] == "two-level" and library["worst at"] == "16 MiB" and library["met"] == "no"
    assert library["ratio"]["median"] == pytest.approx(1.2 * 1.5 * 16 * MIB * 8 / 1e9 / 0.2)
    assert bound["ratio"]["median"] == pytest.approx(1.2) and bound["met"] == "yes"
    assert fixed["ratio"]["median"] == pytest.approx(1.3) and fixed["met"] == "no"
    assert fixed["by"] == "two-level in exact over packed" and scalars["met"] == "yes"
    assert set(FIXED_ORDER).isdisjoint(EXACT) and scalars["by"] in SCALARS
