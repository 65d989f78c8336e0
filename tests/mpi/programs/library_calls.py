"""Calls of the library for C (kernels/library) through ctypes, on all ranks: the bits of kernels.sums, refusals,
reports, floating-point environments. Run by tests/mpi/test_library_mpi.py with the path of libfpna.so."""

import ctypes
import math
import os
import random
from types import SimpleNamespace

import numpy as np
from library_drawn import drawn_numbers
from library_interface import (
    EXACT,
    HANDLE,
    LAYOUT,
    LIBRARY,
    RANK,
    REFUSED,
    RUN,
    SIZE,
    Report,
    address,
    bits,
    call,
    pointer,
    sentence,
)  # fmt: skip
from sections import COMM, MPI, report, section

from kernels import registry, scatter, sums  # noqa: F401  (registers the variants)
from tests import floating

ALWAYS = os.environ.get("FPNA_CHECK") == "1"
OF_MPI = 3  # the code where a call of MPI fails
FIRST = 100  # calls of a communicator that compare what ranks pass


@section
def a_refusal_on_one_rank_is_a_sentence_on_all():
    x = np.ones(5)
    for rank in {0, SIZE - 1}:
        for guarantee in (RUN, LAYOUT, EXACT):
            code, total = call("sum", guarantee, x, threads=-1 if rank == RANK else 0)
            wanted = f"fpna_sum_d: rank {rank}: threads is -1: 0 is as many as OpenMP takes"
            if code != REFUSED or sentence() != wanted or total[0] != 7:
                yield f"{code}, {sentence()!r}, total {total}, expected {wanted!r}"
    code, _ = call("norm2", EXACT, x, weights=x if RANK == 0 else None)
    if code != REFUSED or "rank 0: norm2 takes no weights" not in sentence():
        yield f"weights of a norm: {code}, {sentence()!r}"


def reduction(name, comm, *words, guarantee=EXACT, type=MPI.DOUBLE, into=None):
    """The code of a call for vectors of up to 8 zeros; `words`: what follows the buffers but for the type."""
    send, recv = np.zeros(64), np.zeros(64) if into is None else into
    first, *rest = [pointer(word) if isinstance(word, np.ndarray) else word for word in words]
    arguments = [pointer(send), pointer(recv), first, HANDLE(MPI._handleof(type)), *rest, HANDLE(comm.handle)]
    return getattr(LIBRARY, f"fpna_{name}")(guarantee, *arguments)


def unlike(comm):
    """Calls in which the last rank passes something else than the others: (what all say, its code on this rank)."""
    x, last, single = np.ones(8), RANK == SIZE - 1, np.ones(8, np.float32)
    given = ctypes.pointer(Report())
    counts, ints = np.full(SIZE, 2, np.int32), ctypes.c_int * SIZE
    counts[0] += last
    counts[-1] -= last
    summed = ints(*counts)
    one, two = "on rank 0", f"on rank {SIZE - 1}"
    yield f"FPNA_RUN {one}, FPNA_EXACT {two}", call("sum", EXACT if last else RUN, x, comm=comm)[0]
    yield f"FPNA_LAYOUT {two}, FPNA_EXACT {one}", call("sum", LAYOUT if last else EXACT, x, comm=comm)[0]
    fields = {"n": 2, "fields": 2 if last else 1}
    yield f"1 fields {one}, 2 fields {two}", call("sum", LAYOUT, x, comm=comm, **fields)[0]
    of = "dot" if last else "sum"
    yield f"fpna_sum of double {one}, fpna_dot of double {two}", call(of, EXACT, x, x, comm=comm)[0]
    which = single if last else x
    yield f"fpna_norm2 of float {two}, fpna_norm2 of double {one}", call("norm2", RUN, which, comm=comm)[0]
    reports = {"report": given} if last else {}
    yield f"0 reports {one}, 1 reports {two}", call("sum", EXACT, x, comm=comm, **reports)[0]
    place = np.arange(8), np.zeros(1), np.zeros(1, np.int64)
    if last:
        code = call("sum", EXACT, x, comm=comm)[0]
    else:
        code = LIBRARY.fpna_minloc_d(
            HANDLE(comm.handle), ctypes.c_size_t(8), pointer(x), ctypes.c_ssize_t(1), *map(pointer, place)
        )
    yield f"fpna_sum of double {two}, fpna_minloc of double {one}", code
    yield f"2 elements {two}, 3 elements {one}", reduction("allreduce", comm, 2 if last else 3)
    yield (
        f"0 is the root {one}, {SIZE - 1} is the root {two}",
        reduction("reduce", comm, 3, SIZE - 1 if last else 0),
    )
    code = LIBRARY.fpna_reduce_scatter(
        EXACT, pointer(np.zeros(2 * SIZE)), pointer(np.zeros(3)), summed, HANDLE(MPI._handleof(MPI.DOUBLE)),
        HANDLE(comm.handle),
    )  # fmt: skip
    yield "is the hash of the counts on rank 0", code
    words = np.zeros((3, 70), np.int64)
    code = LIBRARY.fpna_acc_allreduce(pointer(words), ctypes.c_size_t(3 if last else 2), HANDLE(comm.handle))
    yield f"2 accumulators {one}, 3 accumulators {two}", code


@section
def ranks_that_pass_different_things_are_told():
    comm = COMM.Dup()
    for wanted, code in unlike(comm):
        told = sentence()
        if SIZE == 1 and code:
            yield f"{wanted}: {told!r}"
        if SIZE > 1 and (code != REFUSED or "ranks differ: " not in told or wanted not in told):
            yield f"{wanted}: {code}, {told!r}"
    comm.Free()


@section
def what_all_ranks_pass_is_compared_later_on_demand():
    comm, x = COMM.Dup(), np.ones(5)
    for _ in range(FIRST):
        call("sum", RUN, x, comm=comm)
    code, total = call("sum", EXACT if RANK else RUN, x, comm=comm, check=1)
    if code != (REFUSED if SIZE > 1 else 0):
        yield f"guarantees: {code}, {sentence()!r}"
    for guarantee in (RUN, LAYOUT, EXACT):  # messages of one length
        code, total = call("dot" if RANK else "sum", guarantee, x, x, comm=comm)
        said = "ranks differ" if ALWAYS else "ranks make different calls"
        if SIZE > 1 and (code != REFUSED or total[0] != 7 or said not in sentence()):
            yield f"a sum and a dot product, guarantee {guarantee}: {code}, {total}, {sentence()!r}"
        code, total = call("sum", guarantee, x, comm=comm)
        if code or total[0] != 5 * SIZE:
            yield f"guarantee {guarantee} after that: {code}, {total}"
    comm.Free()


@section
def arguments_that_allow_no_message_are_refused():
    x = np.ones(5)
    for guarantee in (0, 4):
        code, _ = call("sum", guarantee if RANK == SIZE - 1 else EXACT, x, comm=(comm := COMM.Dup()))
        if code != REFUSED or f"guarantee {guarantee} is not" not in sentence():
            yield f"guarantee {guarantee}: {code}, {sentence()!r}"
        comm.Free()
    comm = COMM.Dup()
    wrong = {
        f"root is {SIZE}": lambda: reduction("reduce", comm, 3, SIZE if RANK == 0 else 0),
        "-1 elements": lambda: reduction("allreduce", comm, -1 if RANK == 0 else 3),
        "the type is not": lambda: reduction("allreduce", comm, 3, type=MPI.INT if RANK == 0 else MPI.DOUBLE),
        "pass the rows": lambda: reduction("allreduce", comm, 3, guarantee=LAYOUT if RANK == 0 else EXACT),
        "a count is -1": lambda: reduction_by_counts(comm, [-1 if RANK == 0 else 2] * SIZE),
        "counts is NULL": lambda: reduction_by_counts(comm, None if RANK == 0 else [2] * SIZE),
    }
    for said, make in wrong.items():
        code = make()
        if code != REFUSED or said not in sentence():
            yield f"{said}: {code}, {sentence()!r}"
    freed = SimpleNamespace(handle=comm.handle)
    comm.Free()
    code, _ = call("sum", EXACT, x, comm=MPI.COMM_NULL)
    if code != REFUSED or "MPI_COMM_NULL" not in sentence():
        yield f"no communicator: {code}, {sentence()!r}"
    if "MPICH" in MPI.Get_library_version():  # others may take the memory for something else
        code, _ = call("sum", EXACT, x, comm=freed)
        if code != OF_MPI or "Invalid communicator" not in sentence():
            yield f"a freed communicator: {code}, {sentence()!r}"
    if SIZE > 1:
        half = COMM.Split(RANK % 2)
        between = half.Create_intercomm(0, COMM, 1 - RANK % 2)
        code, _ = call("sum", EXACT, x, comm=between)
        if code != REFUSED or "between two groups" not in sentence():
            yield f"an intercommunicator: {code}, {sentence()!r}"
        between.Free()
        half.Free()


def reduction_by_counts(comm, counts):
    """The code of a reduce-scatter."""
    given = None if counts is None else (ctypes.c_int * SIZE)(*counts)
    return LIBRARY.fpna_reduce_scatter(
        EXACT, pointer(np.zeros(3 * SIZE)), pointer(np.zeros(3)), given, HANDLE(MPI._handleof(MPI.DOUBLE)),
        HANDLE(comm.handle),
    )  # fmt: skip


@section
def nothing_on_some_ranks_or_on_all_is_zero():
    for guarantee in (RUN, LAYOUT, EXACT):
        for of in ("sum", "dot", "norm2"):
            for mine in (np.zeros(0), np.full(3, 2.0) if RANK == SIZE - 1 else np.zeros(0)):
                wanted = (
                    {"sum": 6.0, "dot": 12.0, "norm2": np.sqrt(12.0)}[of]
                    if COMM.allreduce(len(mine))
                    else 0.0
                )
                code, total = call(of, guarantee, mine, mine)
                if code or bits(total) != bits(wanted):
                    yield f"{of}, guarantee {guarantee}: {total}, expected {wanted}"
    if call("sum", EXACT, np.ones(3), fields=0)[0]:
        yield f"no fields: {sentence()!r}"


@section
def one_rank_alone_adds_its_own():
    alone = COMM.Split(RANK)
    x = np.full(10, RANK + 0.5)
    for guarantee in (RUN, LAYOUT, EXACT):
        code, total = call("sum", guarantee, x, comm=alone)
        if code or total[0] != 10 * (RANK + 0.5):
            yield f"guarantee {guarantee}: {total}"
    alone.Free()


@section
def a_total_may_lie_in_x():
    for guarantee in (RUN, LAYOUT, EXACT):
        x = np.arange(12.0)
        code, _ = call("sum", guarantee, x, n=6, fields=2, layout=(1, 6, 0), into=x[3:5])
        if code or list(x[3:5]) != [15 * SIZE, 51 * SIZE]:
            yield f"guarantee {guarantee}: {x[3:5]}"


@section
def the_report_names_the_first_nan():
    given = Report()
    x = np.ones((3, 8))
    if RANK == SIZE - 1:
        x[1, 5], x[1, 6], x[2, 0] = np.nan, np.inf, np.inf
    for guarantee in (RUN, LAYOUT, EXACT):
        for numbers, number in ((None, 5), (1000 - 10 * np.arange(8) + RANK, 940 + SIZE - 1)):
            call(
                "sum",
                guarantee,
                x.ravel(),
                n=8,
                fields=3,
                layout=(1, 8, 0),
                report=ctypes.pointer(given),
                numbers=numbers,
            )
            found = given.field, given.rank, given.number, np.isnan(given.value)
            if found != (1, SIZE - 1, number, numbers is None) or not 0 <= given.waiting <= given.seconds:
                yield f"guarantee {guarantee}: {found}, {given.waiting} of {given.seconds} s"
    pairs = np.ones((2, 4), np.complex128)
    pairs[1, 2] = complex(1, np.nan if RANK == SIZE - 1 else 1)
    call("sum", LAYOUT, pairs.ravel(), n=4, fields=2, layout=(1, 4, 0), report=ctypes.pointer(given))
    if (given.field, given.rank, given.number) != (1, SIZE - 1, 2):
        yield f"an imaginary part: {given.field}, {given.rank}, {given.number}"
    everywhere = np.array([1.0, np.nan, 1.0, np.nan])
    for numbers, first in ((None, (0, 0, 1)), (10 * (SIZE - RANK) + np.arange(4), (0, SIZE - 1, 11))):
        call("sum", EXACT, everywhere, report=ctypes.pointer(given), numbers=numbers)
        if (given.field, given.rank, given.number) != first:
            yield f"on all ranks: {given.field}, {given.rank}, {given.number}, expected {first}"
    call("sum", EXACT, np.ones(3), report=ctypes.pointer(given))
    if (given.field, given.rank, given.lost) != (-1, -1, 0):
        yield f"without any: {given.field}, {given.rank}, lost {given.lost}"
    call(
        "sum",
        RUN,
        np.array([1.0, 2.0**-53, 2.0**-53]) if RANK == 0 else np.zeros(3),
        report=ctypes.pointer(given),
    )
    if given.lost != 1:
        yield f"lost {given.lost} units, expected 1"


@section
def one_small_number_among_others_that_cancel_is_kept():
    rng = np.random.default_rng([16, RANK])
    for dtype, small in (("float32", 2.0**-140), ("float64", 2.0**-600)):
        for n in (40, 256, 700, 2048, 5000):
            half = rng.standard_normal(n // 2)
            x = np.concatenate([half, [small if RANK == SIZE - 1 else 0.0], -half]).astype(dtype)
            code, total = call("sum", EXACT, x)
            if code or total[0] != small:
                yield f"{dtype}, {n} numbers: {total}, expected {small}"


@section
def accumulators_are_exact_sums():
    class Accumulator(ctypes.Structure):
        _fields_ = [("words", ctypes.c_int64 * 70)]

    LIBRARY.fpna_acc_value_d.restype = ctypes.c_double
    rng = np.random.default_rng([13, RANK])
    x, y = drawn_numbers(rng, "wide", 500, np.dtype("float64")), rng.standard_normal(500)
    pieces = (Accumulator * 2)()
    one, other = (ctypes.byref(piece) for piece in pieces)
    length, stride = ctypes.c_size_t(250), ctypes.c_ssize_t(2)
    for piece, first in ((one, 0), (other, 1)):
        LIBRARY.fpna_acc_add_d(piece, length, ctypes.c_void_p(address(x, first)), stride)
        LIBRARY.fpna_acc_dot_d(
            piece,
            length,
            ctypes.c_void_p(address(y, first)),
            stride,
            ctypes.c_void_p(address(y, first)),
            stride,
        )
    LIBRARY.fpna_acc_merge(one, other)
    if LIBRARY.fpna_acc_allreduce(one, ctypes.c_size_t(1), HANDLE(COMM.handle)):
        yield sentence()
    ones = np.ones(500)
    all_x, all_ones, all_y = (np.concatenate(COMM.allgather(values)) for values in (x, ones, y))
    exact = registry.get("dot", "exact", "native")
    wanted = exact(np.concatenate([all_x, all_y]), np.concatenate([all_ones, all_y]))
    if bits(LIBRARY.fpna_acc_value_d(one)) != bits(wanted):
        yield f"{LIBRARY.fpna_acc_value_d(one)!r}, expected {wanted!r}"
    if LIBRARY.fpna_acc_allreduce(one, ctypes.c_size_t(2**31), HANDLE(COMM.handle)) != REFUSED:
        yield "more accumulators than a message holds were taken"


@section
def many_numbers_of_all_bits_fit_into_a_cell():
    adds = registry.get("scatter_add", "exact", "native")
    for n in (4095, 20000):
        x, cell, total = np.full(n, -np.nextafter(2.0, 0)), np.zeros(n, np.int64), np.zeros(1)
        code = LIBRARY.fpna_scatter_add_d(
            HANDLE(COMM.handle), ctypes.c_size_t(n), pointer(cell), pointer(x), ctypes.c_size_t(1), pointer(total), 0
        )  # fmt: skip
        wanted = adds(np.tile(x, SIZE), np.tile(cell, SIZE), 1)
        if code or bits(total) != bits(wanted):
            yield f"{n} numbers: {total}, expected {wanted}"


@section
def a_cell_that_there_is_not_is_refused():
    cell, x = np.array([0, 5 if RANK == SIZE - 1 else 1]), np.ones(2)
    code = LIBRARY.fpna_scatter_add_d(
        HANDLE(COMM.handle),
        ctypes.c_size_t(2),
        pointer(cell),
        pointer(x),
        ctypes.c_size_t(2),
        pointer(np.empty(2)),
        0,
    )
    if code != REFUSED or (RANK == SIZE - 1 and "cell 5 of element 1 is not from 0 to 1" not in sentence()):
        yield f"a cell that is none: {code}, {sentence()}"


@section
def a_persistent_reduction_is_started_again_and_again():
    x, total, request = np.empty(5), np.empty(5), ctypes.c_void_p()
    arguments = 5, HANDLE(MPI._handleof(MPI.DOUBLE)), HANDLE(COMM.handle)
    code = LIBRARY.fpna_allreduce_init(EXACT, pointer(x), pointer(total), *arguments, ctypes.byref(request))
    for k in range(3):
        x[:] = RANK + k + 0.1
        code |= LIBRARY.fpna_start(request)
        done = ctypes.c_int(0)
        while not done.value and not code:
            code |= LIBRARY.fpna_test(ctypes.byref(request), ctypes.byref(done))
        if code or bits(total) != bits(np.full(5, math.fsum(rank + k + 0.1 for rank in range(SIZE)))):
            yield f"start {k}: {sentence() if code else total}"
    if LIBRARY.fpna_request_free(ctypes.byref(request)) or request:
        yield f"not freed: {sentence()}"


@section
def no_environment_changes_bits_or_is_changed():
    if not floating.HERE:
        return
    draw = random.Random(14)
    rng = np.random.default_rng([15, RANK])
    x = drawn_numbers(rng, "special", 40000, np.dtype("float64"))  # for several threads
    small = drawn_numbers(rng, "subnormal", 40000, np.dtype("float64"))
    environments = [
        floating.Environment(traps=floating.LOUD), floating.Environment(flush=True, zeros=True),
        floating.Environment(rounding="up"), *(floating.drawn(draw) for _ in range(6)),
    ]  # fmt: skip
    for values, of in ((x, "sum"), (small, "sum"), (x, "dot"), (x, "norm2")):
        for guarantee in (RUN, LAYOUT, EXACT):
            total = np.zeros(1)
            call(of, guarantee, values, values, into=total)
            wanted = bits(total)
            for environment in environments:
                total = np.zeros(1)
                with environment.chosen() as left:
                    code, _ = call(of, guarantee, values, values, into=total, threads=2)
                if code or bits(total) != wanted:
                    yield f"{of}, guarantee {guarantee}, {environment}: {total}, code {code}"
                for trouble in floating.troubles(environment, left):
                    yield f"{of}, guarantee {guarantee}, {environment}: {trouble}"


if __name__ == "__main__":
    report()
