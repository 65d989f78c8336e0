"""Programs that make other calls on another number of ranks, such as solvers that iterate more often."""

import random

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.comparison import facts
from analysis.divergence.calls import by_call
from analysis.divergence.cause import cause
from analysis.divergence.compare import compare
from analysis.load.frames import load
from miniapps.trace import Tracer
from miniapps.trace.records import PASSING, TOTAL
from miniapps.trace.schema import rank_file
from tests.analysis.synthetic import write_result

INNER, NORM = "MPI_Allreduce at dot (cg.c:7)", "MPI_Allreduce at norm (cg.c:9)"
ROW = "MPI_Allreduce at row (cg.c:11) on split 1"  # of two ranks


def write(place, calls, ranks, operation="sum", dtype="float64", lengths=None):
    """A run on `ranks` ranks whose collectives are `calls`, each a name and the bits of its total, with arrays of the
    `lengths` where these are given. Those over two ranks are of all ranks where there are no more."""
    place.mkdir(parents=True)
    facts = {"ordering": "library", "accumulation": "working", "wire": "as is", "collective": "allreduce",
             "guarantee": "none", "operation": operation, "dtype": dtype, "shape": [1], "ranks": ranks}  # fmt: skip
    known = {
        "app": "calls", "problem": "p", "guarantee": "none", "seed": 1, "repeats": 1, "allocation_id": "",
        "started": "2026-01-01T00:00:00+00:00", "run_id": str(place), "environment": {"mpi": "", "variables": {}},
        "config": {"program": {"sums": "none"}, "recording": {"of_ranks": True}}, "method": {"program.sums": "none"},
        "options": {
            "program.sums": {"effect": "reduction"},
            "recording.of_ranks": {
                "records": [*(f"fingerprints:{prefix}* by rank *" for prefix in PASSING), "values:source:*"],
                "of_ranks": True,
            },
        },
        "reductions": {
            name: facts | {"region": name, "calls": len(calls), "ranks": of}
            for name, of in ((INNER, ranks), (NORM, ranks), (ROW, 2))
        },
    }  # fmt: skip
    for rank in range(ranks):
        tracer, step = Tracer(place / rank_file(rank), known | {"rank": rank}, size=ranks), 0
        for i, (name, bits) in enumerate(calls):
            of_all = name != ROW or ranks == 2
            tracer.at(0, step)
            tracer.event(tracer.name(name, "collective"), tracer.clock())
            total = f"{TOTAL}{name}" if of_all else f"{TOTAL}{name} by rank {rank} of {ranks}"
            if (rank == 0 or not of_all) and lengths:
                tracer.array(total, -1, np.full(lengths[i], 1.0 + bits))
            elif rank == 0 or not of_all:
                tracer.fingerprint(total, -1, bytes([bits] * 16))
            step += of_all
        tracer.close(complete=True)
    write_result(place, fingerprints=[])


def path(rng, most):
    """The names of a solver's calls: solves of up to `most` iterations with a norm after each."""
    return [name for _ in range(rng.randint(1, 4)) for name in [INNER] * rng.randint(1, most) + [NORM]]


@pytest.mark.parametrize("seed", range(8))
def test_calls_are_compared_up_to_the_step_where_the_paths_part(seed, tmp_path):
    """Where two runs make other calls is no reason to compare nothing before it: a sum that differs there is named, and
    what comes later is not compared, whatever its bits."""
    rng = random.Random(seed)
    one, other = path(rng, 4), path(rng, 4)
    alike = next((i for i, names in enumerate(zip(one, other, strict=False)) if names[0] != names[1]), None)
    part = min(len(one), len(other)) if alike is None else alike
    from_step = rng.randrange(max(len(one), len(other)))  # the totals differ from here on
    write(tmp_path / "a", [(name, 0) for name in one], 2)
    write(tmp_path / "b", [(name, int(step >= from_step)) for step, name in enumerate(other)], 4)
    comparison = compare(load([tmp_path / "a", tmp_path / "b"]), ("a", 0), ("b", 0))
    assert comparison.compared >= part
    if from_step < part:
        assert comparison.differs and comparison.first.step == from_step
    if alike is None:
        assert comparison.parted is None and not comparison.moved
        assert comparison.differs == (from_step < part)
    elif comparison.moved:
        assert comparison.parted == part


def test_a_solver_that_iterates_more_often_differs_where_its_first_sum_does(tmp_path, capsys):
    one, other = [INNER, INNER, NORM, INNER, NORM], [INNER, INNER, INNER, NORM, INNER, NORM]
    write(tmp_path / "a", [(name, 0) for name in one], 2)
    write(tmp_path / "b", [(name, int(step > 0)) for step, name in enumerate(other)], 4)
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 3
    printed = capsys.readouterr().out
    assert "differ: first at step 1, total:MPI_Allreduce at dot (cg.c:7)" in printed
    assert "from step 2 on, the two make other calls, so these are not compared there" in printed
    main(["variability", str(tmp_path / "a"), str(tmp_path / "b")])
    assert capsys.readouterr().out.startswith("DIFFERS")


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        *((operation, "float64") for operation in ("sum", "prod", "max", "land", "")),
        *(("sum", dtype) for dtype in ("float32", "int32", "MPI_INTEGER8", "MPI_C_BOOL")),
        ("prod", "float32"), ("max", "float32"), ("prod", "int32"), ("", "int32"),
    ],
)  # fmt: skip
def test_an_order_is_blamed_only_where_an_order_can_matter(operation, dtype, tmp_path):
    """The total of whole numbers, a logical one and the largest are the same in every order, on any number of ranks."""
    for name, ranks in (("a", 2), ("b", 4)):
        write(tmp_path / name, [(INNER, ranks)], ranks, operation, dtype)
    frames = load([tmp_path / "a", tmp_path / "b"])
    judged = cause(frames, compare(frames, ("a", 0), ("b", 0)))
    can = operation == "" or (operation in ("sum", "prod") and dtype.startswith("float"))
    assert judged.kind == ("contributions or order" if can else "local kernel")
    assert ("partial sums of other ranks" in judged.instead_why) == (not can and dtype.startswith("float"))


def test_equal_bits_up_to_where_the_paths_part_are_said_to_be_no_more(tmp_path, capsys):
    one = [INNER, INNER, NORM, INNER, NORM]
    write(tmp_path / "a", [(name, 0) for name in one], 2)
    write(tmp_path / "b", [(name, 0) for name in [INNER, *one]], 4)
    write(tmp_path / "c", [(name, 0) for name in [NORM, *one]], 4)
    runs = [str(tmp_path / name) for name in "abc"]
    main(["variability", *runs[:2]])
    assert "compared: 2 fingerprints and values; 2 calls not, or not to the end" in capsys.readouterr().out
    assert main(["divergence", runs[0], runs[2]]) == 2
    assert "from step 0 on, the two make other calls" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(8))
def test_sums_over_few_ranks_shift_no_call_of_all_ranks(seed, tmp_path):
    """Two ranks are all ranks of one run: a sum over two of them is a step there, and none in the other run. It is left
    out by itself, and the first call of all ranks that differs is named, by the steps of both runs."""
    rng = random.Random(seed)
    names = [INNER, *(rng.choice((INNER, NORM, ROW, ROW)) for _ in range(rng.randint(3, 30)))]
    of_all = [i for i, name in enumerate(names) if name != ROW]
    differs = rng.choice([*of_all, len(names)])
    ranks = (4, 2) if seed % 2 else (2, 4)
    for place, size, bits in zip("ab", ranks, (0, 1), strict=True):
        calls = [(name, bits * (i >= differs or name == ROW)) for i, name in enumerate(names)]
        write(tmp_path / place, calls, size)
    frames = load([tmp_path / "a", tmp_path / "b"])
    comparison = compare(frames, ("a", 0), ("b", 0))
    assert comparison.comparable and comparison.parted is None and not comparison.moved
    assert comparison.compared == len(of_all)
    assert comparison.differs == (differs < len(names))
    if not comparison.differs:
        return
    steps = {2: differs, 4: differs - names[:differs].count(ROW)}
    assert comparison.first.steps == tuple(steps[size] for size in ranks)
    judged = cause(frames, comparison)
    assert (judged.name, judged.step) == (names[differs], comparison.first.step)
    assert ("steps" in dict(facts(comparison, frames, judged))) == (steps[2] != steps[4])
    called = by_call(frames, ("a", 0), ("b", 0))
    assert called["got_differing"].sum() == sum(i >= differs for i in of_all)


@pytest.mark.parametrize("seed", range(6))
def test_arrays_whose_length_depends_on_the_ranks_are_left_out_one_by_one(seed, tmp_path):
    rng = random.Random(seed)
    names = [rng.choice((INNER, NORM)) for _ in range(rng.randint(2, 12))]
    own = [False, *(rng.random() < 0.4 for _ in names[1:])]
    wrong = rng.choice([None, *(i for i, each in enumerate(own) if not each)])
    for place, ranks in (("a", 2), ("b", 4)):
        calls = [(name, ranks if each else int((place, i) == ("b", wrong)))
                 for i, (name, each) in enumerate(zip(names, own, strict=True))]  # fmt: skip
        write(tmp_path / place, calls, ranks, lengths=[ranks if each else 5 for each in own])
    comparison = compare(load([tmp_path / "a", tmp_path / "b"]), ("a", 0), ("b", 0))
    assert comparison.comparable and comparison.compared == own.count(False)
    assert comparison.equal == (wrong is None)
    assert set(comparison.left_out) == {
        f"{TOTAL}{name}" for name, each in zip(names, own, strict=True) if each
    }
    assert (comparison.first and comparison.first.step) == wrong
