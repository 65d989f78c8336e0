"""The libraries' algorithms, forced one by one, have the bits of our schedules: MPICH 5 and Open MPI 5.

`expected(p, n)` names the ordering for every size and length; where a library falls back, it names what it falls back
to. That two different orders are told apart is tested along: of a list of orderings exactly those have the bits whose
trees are the same.
"""

import json
import re
from functools import cache, reduce
from itertools import zip_longest

import numpy as np
import pytest

from kernels.allreduce.catalog import get
from kernels.allreduce.instruments.candidates import classes
from kernels.allreduce.simulator import carry_out
from tests.launch import libraries, run_mpi
from tests.mpi.programs import conformance

PROGRAM = conformance.__file__
# Compared with every algorithm, beside the one expected.
OTHERS = ("recursive-doubling", "linear", "reverse", "binomial", "ring", "ring:start=1,cut=full")


@cache
def signature(name, p, n, dtype):
    """Digest of the totals of our schedule, on the serial simulator."""
    schedule = get(name).schedule(p)
    cuts = [slice(*schedule.bounds(n, chunk)) for chunk in range(schedule.chunks)]
    vectors = [conformance.numbers(p, rank, n, dtype) for rank in range(p)]
    own = [[[vector[:, cut] for cut in cuts]] for vector in vectors]
    totals = carry_out(schedule, own, lambda values: reduce(np.add, values))
    return conformance.digest(np.concatenate(totals[0], axis=1))


@cache
def class_of(name, p, n):
    """Those of OTHERS and the name itself that make the same additions as `name`."""
    return next(same for same, _ in classes((*OTHERS, name), p, n, {}) if name in same)


def power(k, p):
    """The largest power of k that is at most p."""
    return 1 if p < k else k * power(k, p // k)


def constantly(*names):
    return lambda p, n: names


def mpich(algorithm, of="ALLREDUCE", **parameters):
    """Environment that forces an algorithm of MPICH's; IALLREDUCE is that of persistent calls too."""
    chosen = {"INTRA_ALGORITHM": algorithm, **parameters}
    return {f"MPIR_CVAR_{of}_{key}": str(value) for key, value in chosen.items()}


def openmpi(algorithm, **parameters):
    """Environment that forces an algorithm of Open MPI's blocking all-reduce."""
    chosen = {"use_dynamic_rules": 1, "allreduce_algorithm": algorithm, **parameters}
    return {f"OMPI_MCA_coll_tuned_{key}": str(value) for key, value in chosen.items()}


def openmpi_started(algorithm):
    """Environment that forces an algorithm of Open MPI's non-blocking and persistent all-reduces."""
    return {"OMPI_MCA_coll_libnbc_iallreduce_algorithm": str(algorithm)}


DOUBLING = constantly("recursive-doubling")
MPICH_RING = constantly("ring:start=1,cut=full")
SHAPES = {"knomial_1": "depth", "knomial_2": "far", "kary": "heap"}


def reduce_and_broadcast(p, n):
    """MPICH's reduce: binomial up to 2 KiB, of either type, then by halving."""
    return ("binomial",) if n < 100 else ("rabenseifner",)


def tuned_ring(p, n):
    return ("ring",) if n >= p else ("recursive-doubling",)


def tuned_halving(p, n):
    return ("rabenseifner",) if n >= power(2, p) else ("reverse",)


def started_halving(p, n):
    return ("rabenseifner",) if n >= power(2, p) else ("ring:start=-1",)


# What is forced -> library, environment, call, orderings expected for p ranks and n elements: one of them.
FAST = {
    "mpich": ("mpich", {}, "blocking", DOUBLING),
}
SLOW = {
    "mpich ring": ("mpich", mpich("ring"), "blocking", MPICH_RING),
    "openmpi ring": ("openmpi", openmpi(4), "blocking", tuned_ring),
    "mpich smp": ("mpich", mpich("smp"), "blocking", reduce_and_broadcast),
    "mpich recursive_doubling": ("mpich", mpich("recursive_doubling"), "blocking", DOUBLING),
    "mpich reduce_scatter_allgather": (
        "mpich",
        mpich("reduce_scatter_allgather"),
        "blocking",
        constantly("rabenseifner"),
    ),
    **{
        f"mpich recursive_multiplying {k}": (
            "mpich",
            mpich("recursive_multiplying", RECURSIVE_MULTIPLYING_KVAL=k),
            "blocking",
            constantly(f"recursive-multiplying:k={k}"),
        )
        for k in (2, 3, 4)
    },
    **{
        f"mpich recexch {k}": (
            "mpich",
            mpich("recexch", RECEXCH_KVAL=k),
            "blocking",
            constantly(f"recursive-multiplying:k={k},fold=neighbours"),
        )
        for k in (2, 3, 4)
    },
    **{
        f"mpich k_reduce_scatter_allgather {k}": (
            "mpich",
            mpich("k_reduce_scatter_allgather", RECEXCH_KVAL=k),
            "blocking",
            constantly(f"rabenseifner:k={k}"),
        )
        for k in (2, 3, 4)
    },
    **{
        f"mpich tree {kind} {k}": (
            "mpich",
            mpich("tree", TREE_TYPE=kind, TREE_KVAL=k),
            "blocking",
            constantly(f"k-nomial:k={k},tree={shape}"),
        )
        for kind, shape in SHAPES.items()
        for k in (2, 3)
    },
    "mpich nb": ("mpich", mpich("nb"), "blocking", DOUBLING),
    "mpich persistent": ("mpich", {}, "persistent", DOUBLING),
    **{
        f"mpich persistent {algorithm}": ("mpich", mpich(algorithm, "IALLREDUCE"), "persistent", expected)
        for algorithm, expected in {
            "sched_naive": reduce_and_broadcast,
            "sched_smp": reduce_and_broadcast,
            "sched_recursive_doubling": DOUBLING,
            "sched_reduce_scatter_allgather": constantly("rabenseifner"),
            "tsp_recexch_single_buffer": DOUBLING,
            "tsp_recexch_multiple_buffer": DOUBLING,
            "tsp_tree": constantly("k-nomial:k=2,tree=heap"),
            "tsp_ring": MPICH_RING,
        }.items()
    },
    "mpich persistent tsp_recexch_reduce_scatter_recexch_allgatherv 3": (
        "mpich",
        mpich("tsp_recexch_reduce_scatter_recexch_allgatherv", "IALLREDUCE", RECEXCH_KVAL=3),
        "persistent",
        constantly("rabenseifner:k=3"),
    ),
    "openmpi": ("openmpi", {}, "blocking", constantly("recursive-doubling", "ring")),
    "openmpi basic linear": ("openmpi", openmpi(1), "blocking", constantly("reverse")),
    "openmpi non-overlapping": (
        "openmpi",
        openmpi(2),
        "blocking",
        constantly("reverse", "binomial", "k-nomial:k=2,tree=levels"),
    ),
    "openmpi recursive doubling": ("openmpi", openmpi(3), "blocking", DOUBLING),
    "openmpi segmented ring": (
        "openmpi",
        openmpi(5, allreduce_algorithm_segmentsize=64),
        "blocking",
        lambda p, n: ("segmented-ring",) if n >= p else ("recursive-doubling",),
    ),
    "openmpi rabenseifner": ("openmpi", openmpi(6), "blocking", tuned_halving),
    "openmpi persistent": (
        "openmpi",
        {},
        "persistent",
        constantly("binomial", "recursive-doubling"),
    ),
    "openmpi persistent ring": ("openmpi", openmpi_started(1), "persistent", constantly("ring:start=-1")),
    "openmpi persistent binomial": ("openmpi", openmpi_started(2), "persistent", constantly("binomial")),
    "openmpi persistent rabenseifner": ("openmpi", openmpi_started(3), "persistent", started_halving),
    "openmpi persistent recursive doubling": ("openmpi", openmpi_started(4), "persistent", DOUBLING),
}
CASES = FAST | SLOW


def launches(library):
    """The cases of a library, two to a launch: of either call one, or None where there are no more.

    Variables of their own force the two. `nb` alone starts what the other call would: it comes late, and stays alone.
    """
    by_call = [
        [case for case, (of, _, its, _) in CASES.items() if (of, its) == (library, call)]
        for call in ("blocking", "persistent")
    ]
    return list(zip_longest(*by_call))


@cache
def forced(cases):
    """What conformance.py prints with what these cases force."""
    library = CASES[cases[0]][0]
    env = {key: value for case in cases if case for key, value in CASES[case][1].items()}
    calls = [CASES[case][2] for case in cases if case]
    run = run_mpi(8, [PROGRAM, *calls], library=library, env=env, timeout=250)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("case", [*FAST, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)])
def test_a_forced_algorithm_has_the_bits_of_the_schedule_expected(case):
    library, _, call, expected = CASES[case]
    digests = forced(next(cases for cases in launches(library) if case in cases))[call]
    assert digests.keys() == {f"{p} {n} {dtype}" for p, n, dtype in conformance.cases()}
    for p, n, dtype in conformance.cases():
        digest = digests[f"{p} {n} {dtype}"]
        ran = [name for name in expected(p, n) if signature(name, p, n, dtype) == digest]
        assert ran, f"{p} ranks, {n} {dtype}: not the bits of {' or '.join(expected(p, n))}"
        same = {name for name in OTHERS if signature(name, p, n, dtype) == digest}
        assert same == set(class_of(ran[0], p, n)) & set(OTHERS), f"{p} ranks, {n} {dtype}"


@pytest.mark.slow
def test_an_exchange_in_which_each_rank_adds_its_own_number_last_leaves_the_ranks_with_different_bits():
    env = mpich("tsp_recexch_single_buffer", "IALLREDUCE", RECEXCH_KVAL=3)
    run = run_mpi(8, [PROGRAM, "persistent"], library="mpich", env=env, timeout=250)
    digests = json.loads(run.stdout)["persistent"]
    assert all(isinstance(digests[f"{p} 1000 float64"], list) for p in (3, 4, 5, 7, 8))


# The command


def identified(n, arguments, library="mpich", env=None):
    run = run_mpi(n, ["-m", "kernels.allreduce", "identify", *arguments], library, env, timeout=250)
    return run.returncode, run.stdout, run.stderr


def test_identify_says_what_ran_and_that_it_was_forced(tmp_path):
    file = tmp_path / "found.json"
    arguments = ["--length", "7", "0", "--dtype", "float32", "--tree", "--json", str(file)]
    code, text, _ = identified(3, arguments, env=mpich("ring"))
    assert code == 0
    assert "MPICH" in text and "3 ranks" in text
    assert "forced: MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=ring (means ring:start=1,cut=full)" in text
    assert "as forced: ring:start=1,cut=full" in text
    assert "elements 3 ... 5: ((x[0] + x[2]) + x[1])" in text
    written = json.loads(file.read_text())
    assert (written["ranks"], written["dtype"], written["call"]) == (3, "float32", "blocking")
    empty, seven = written["lengths"]
    assert (empty["length"], empty["calls"]) == (0, 0)
    assert seven["repeats"] and seven["ranks_agree"] and seven["as_forced"]
    assert "ring:start=1,cut=full" in seven["orderings"]
    first = seven["trees"][0]
    assert (first["elements"], first["tree"]) == ([[0, 2]], "(x[0] + (x[1] + x[2]))")
    assert first["verified"] and "reverse" in first["orderings"] and first["over_nodes"] == []


@pytest.mark.parametrize(
    ("n", "library", "env", "follows"),
    [
        (2, "mpich", {}, set()),
        (3, "mpich", {}, {"ranks that hold the numbers"}),
        (5, "mpich", {}, {"ranks that hold the numbers", "number of ranks"}),
        (
            4, "mpich", mpich("ring"),
            {"ranks that hold the numbers", "number of ranks", "place in the vector", "length of the vector",
             "call nonblocking", "call persistent"},
        ),
        pytest.param(
            4, "openmpi", openmpi(3), {"ranks that hold the numbers", "number of ranks"}, marks=pytest.mark.slow
        ),
    ],
)  # fmt: skip
def test_identify_tells_on_what_the_bits_depend(n, library, env, follows, tmp_path):
    file = tmp_path / "found.json"
    code, text, error = identified(
        n, ["--length", "13", "--depends", "--time", "7", "--json", str(file)], library, env
    )
    assert code == 0, error
    [thirteen] = json.loads(file.read_text())["lengths"]
    assert {each["on"] for each in thirteen["depends"] if each["differ"]} == follows
    assert all(each["compared"] > 200 for each in thirteen["depends"])
    assert (thirteen["time"]["calls"], thirteen["time"]["distinct"]) == (7, 1)
    assert "bits change with" in text and "1 of 7 calls" in text


@pytest.mark.slow
@libraries
def test_a_dependence_put_into_a_library_is_found_and_no_other(library):
    run = run_mpi(4, ["tests/mpi/programs/library_dependence.py", "1", "7"], library, timeout=250)
    assert run.returncode == 0, run.stderr


def test_identify_tells_a_silent_fallback():
    code, text, _ = identified(4, ["--length", "3", "9"], "openmpi", openmpi(4))
    assert code == 0
    short, long = re.split(r"^ +9 ", text.split("bits of\n")[1], flags=re.MULTILINE)
    assert "recursive-doubling" in short and "NOT AS FORCED" in short
    assert "ring" in long and "as forced: ring" in long


@pytest.mark.slow
def test_identify_shows_the_tree_of_an_order_that_is_none_of_ours():
    in_order_binary = openmpi(2) | {"OMPI_MCA_coll_tuned_reduce_algorithm": "6"}
    code, text, _ = identified(6, ["--length", "9"], "openmpi", in_order_binary)
    assert code == 0
    assert "no known ordering" in text
    assert "all elements: ((x[0] + (x[1] + x[2])) + ((x[3] + x[4]) + x[5]))" in text


@pytest.mark.slow
def test_identify_ends_with_code_3_where_ranks_hold_different_bits():
    env = mpich("tsp_recexch_multiple_buffer", "IALLREDUCE", RECEXCH_KVAL=3)
    code, text, _ = identified(4, ["--call", "persistent", "--length", "100"], env=env)
    assert code == 3 and "DIFFER" in text


@pytest.mark.parametrize(
    "ranks, arguments, message",
    [
        (1, [], "one rank adds nothing"),
        (2, ["--dtype", "int64"], "unknown dtype 'int64': choose one of float64, float32"),
        pytest.param(2, ["--call", "nightly"], "unknown call 'nightly'", marks=pytest.mark.slow),
        pytest.param(2, ["--length", "1", "-4"], "argument --length: choose 0 to", marks=pytest.mark.slow),
        pytest.param(2, ["--json", "/nowhere/x"], "--json /nowhere/x: No such file", marks=pytest.mark.slow),
    ],
)
def test_identify_refuses_what_it_cannot_do_and_says_so_once(ranks, arguments, message):
    code, text, error = identified(ranks, arguments)
    assert code == 2 and not text
    assert error.count(message) == 1
