"""A communicator of mpi4py whose sums keep a promise.

Run by tests/mpi/test_wrapped_mpi.py as `mpirun -n P python wrapped.py`.
"""

import copy
import itertools
import math
import sys
import warnings
from fractions import Fraction
from functools import partial

import ml_dtypes
import numpy as np
import torch
from mpi4py import MPI
from mpi4py.util import pkl5
from sections import COMM, raised, report, section

import fpna
from kernels.allreduce import CallMismatch
from kernels.allreduce.simulator import simulate
from miniapps.programs import plans

RANK, SIZE = COMM.rank, COMM.size
ROWS, N = 13, 6
LEVELS = ("run", "layout", "exact")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def numbers(dtype="float64", n=N, seed=3, decades=6):
    """All rows, the same on every rank, of wide range and cancelling."""
    rng = np.random.default_rng([seed, n])
    x = rng.standard_normal((ROWS, n)) * 10.0 ** rng.integers(-decades, decades + 1, (ROWS, n))
    x[5], x[7] = -x[2], -0.0
    return x.astype(dtype)


def owned(shuffled=False):
    """The rows of this rank."""
    rows = np.random.default_rng(SIZE).permutation(ROWS) if shuffled else np.arange(ROWS)
    return np.sort(rows[RANK * ROWS // SIZE : (RANK + 1) * ROWS // SIZE])


def rounded(x):
    """The sum over axis 0, correctly rounded."""
    exact = [sum(map(Fraction, column)) for column in x.T.astype(np.float64).tolist()]
    if x.dtype == np.float64:
        return np.array([float(total) for total in exact])
    return np.array([_float32(total) for total in exact], x.dtype)


def _float32(total):
    """A rational number to the nearest float32; float64 first is exact here, as no total lies on its midpoints."""
    return np.float32(float(total))


def same(a, b):
    """Whether two arrays have the same bits."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@section
def rows_have_the_same_bits_on_any_number_of_ranks():
    for level, dtype, shuffled in itertools.product(
        ("layout", "exact"), ("float64", "float32"), (False, True)
    ):
        x = numbers(dtype)
        alone, total = np.empty(N, dtype), np.empty(N, dtype)
        fpna.wrap(MPI.COMM_SELF, level).Allreduce(x, alone, axis=0)
        comm = fpna.wrap(COMM, level)
        comm.Allreduce(x[owned(shuffled)], total, MPI.SUM, axis=0)
        if not same(total, alone):
            yield f"{level} {dtype}: {total} on {SIZE} ranks, {alone} on one"
        if level == "exact" and not same(total, rounded(x)):
            yield f"{level} {dtype}: {total} is not correctly rounded, {rounded(x)} is"
        comm.release()


@section
def a_tree_over_blocks_needs_their_numbers():
    x = numbers()
    comm = fpna.wrap(COMM, "layout", ordering="block-tree")
    alone, total = np.empty(N), np.empty(N)
    fpna.wrap(MPI.COMM_SELF, "layout", ordering="block-tree").Allreduce(x, alone, blocks=range(ROWS))
    mine = owned(shuffled=True)
    for _ in range(2):
        comm.Allreduce(x[mine], total, blocks=mine)
    if not same(total, alone):
        yield f"{total}, {alone} on one rank"
    unnumbered = fpna.wrap(COMM, "layout", ordering="block-tree")
    if "pass blocks=" not in raised(ValueError, partial(unnumbered.Allreduce, x[mine], total, axis=0)):
        yield "no numbers of blocks were asked for"
    comm.release()


@section
def every_call_gives_the_same_total():
    x = numbers()
    for level in LEVELS:
        comm = fpna.wrap(COMM, level)
        whole, total = np.empty(N), np.empty(N)
        comm.Allreduce(x[RANK], whole, blocks=RANK)
        if level == "run" and not same(whole, simulate(comm.policy.scalars[0], x[:SIZE, None])[0]):
            yield f"run: {whole}"
        comm.Reduce(x[RANK], total if RANK == SIZE - 1 else None, root=SIZE - 1, blocks=RANK)
        if RANK == SIZE - 1 and not same(total, whole) and level != "run":
            yield f"{level}: Reduce gives {total}, Allreduce {whole}"
        total[:] = x[RANK]
        comm.Allreduce(MPI.IN_PLACE, total, blocks=RANK)
        if not same(total, whole):
            yield f"{level}: in place {total}, {whole}"
        for spec in ([x[RANK], MPI.DOUBLE], [x[RANK], N], [x[RANK], N, "d"], x[RANK].reshape(2, 3)):
            total[:] = 0
            comm.Allreduce(spec, [total, MPI.DOUBLE], blocks=RANK)
            if not same(total, whole):
                yield f"{level}: {type(spec)} gives {total}"
        part, wide = np.empty(N), np.tile(x[RANK], SIZE)
        comm.Reduce_scatter_block(wide, part, blocks=RANK)
        again = np.empty(N)
        comm.Reduce_scatter(wide, again, [N] * SIZE, blocks=RANK)
        if level != "run" and not (same(part, whole) and same(again, whole)):
            yield f"{level}: parts {part}, {again}, {whole}"
        scalar = np.empty(())
        comm.Allreduce(x[RANK, 0], scalar, blocks=RANK)
        if level != "run" and not same(scalar[()], whole[0]):
            yield f"{level}: a single number gives {scalar}"
        comm.release()


@section
def types():
    comm = fpna.wrap(COMM, "layout")
    for dtype in ("float16", BFLOAT16, "complex128", "complex64"):
        x = numbers("float64", decades=2)
        x = x.astype(dtype) if np.dtype(dtype).kind != "c" else (x + 1j * x[::-1]).astype(dtype)
        alone, total = np.empty(N, dtype), np.empty(N, dtype)
        fpna.wrap(MPI.COMM_SELF, "layout").Allreduce(x, alone, axis=0)
        comm.Allreduce(x[owned()], total, axis=0)
        if not same(total, alone):
            yield f"{dtype}: {total}, {alone} on one rank"
        worst = np.abs(total.astype(complex) - x.astype(complex).sum(axis=0)).max()
        if worst > 4 * float(ml_dtypes.finfo(total.real.dtype).eps) * np.abs(x.astype(complex)).sum():
            yield f"{dtype}: {total} is off by {worst}"
    x = torch.from_numpy(numbers("float32"))
    alone, total = torch.empty(N), torch.empty(N, dtype=torch.bfloat16)
    comm.Allreduce(x[owned()], alone, axis=0)
    comm.Allreduce(x[owned()].to(torch.bfloat16), total, axis=0)
    if not torch.allclose(alone, x.double().sum(0).float()) or not total.isfinite().all():
        yield f"torch: {alone}, {total}"
    whole = np.array([RANK + 1])
    comm.Allreduce(MPI.IN_PLACE, whole)
    if whole[0] != SIZE * (SIZE + 1) // 2:
        yield f"integers: {whole}"
    comm.release()


@section
def least_and_greatest_have_one_bit_pattern():
    comm = fpna.wrap(COMM, "layout")
    quiet = np.array([0x7FF8000000000000 + RANK], np.uint64).view(np.float64)[0]
    for given in ((0.0, -0.0), (1.0, 2.0), (quiet, quiet)):
        for op in (MPI.MIN, MPI.MAX):
            total = np.empty(1)
            comm.Allreduce(np.array([given[RANK % 2]]), total, op)
            if len({bytes(t) for t in COMM.allgather(total.tobytes())}) != 1:
                yield f"{given}: ranks disagree"
            if given[0] == 0 and np.signbit(total[0]):
                yield "minus zero"
            if np.isnan(given[0]) and total.view(np.uint64)[0] != 0x7FF8000000000000:
                yield f"a NaN kept what was in it: {total.view(np.uint64)}"
    comm.release()


@section
def objects():
    x = [0.1 * 3**k for k in range(SIZE)]
    for level in ("layout", "exact"):
        comm = fpna.wrap(COMM, level)
        exact = float(sum(map(Fraction, x)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fpna.LayoutWarning)
            if (total := comm.allreduce(x[RANK])) != exact or type(total) is not float:
                yield f"{level}: {total!r}, {exact!r}"
            mixed = comm.allreduce(x[0] if RANK == 0 else 0)
            if mixed != x[0] or type(mixed) is not float:
                yield f"{level}: integers beside a float: {mixed!r}"
            if type(comm.allreduce(np.float32(0.5))) is not np.float32 or comm.allreduce(2) != 2 * SIZE:
                yield f"{level}: types of results"
            if comm.allreduce(complex(RANK, 1)) != complex(SIZE * (SIZE - 1) // 2, SIZE):
                yield f"{level}: complex"
            total = comm.reduce(np.full(3, x[RANK]), root=0)
            if (total is None) != (RANK > 0) or (RANK == 0 and not same(total, np.full(3, exact))):
                yield f"{level}: reduce {total}"
        for bad, word in (("text", "a str"), ([1.5], "a list"), (2**70, "a large integer")):
            if word not in (error := raised(fpna.ChoiceError, partial(comm.allreduce, bad))):
                yield f"{bad!r}: {error}"
        odd = np.ones(2 + (RANK == SIZE - 1))
        if SIZE > 1 and "different shapes" not in raised(fpna.ChoiceError, partial(comm.allreduce, odd)):
            yield "different shapes"
        comm.release()
    if fpna.wrap(COMM, "none").allreduce([1]) != [1] * SIZE:
        yield "a list without a guarantee"


@section
def reductions_under_way():
    comm = fpna.wrap(COMM, "layout")
    x = numbers(n=700)
    totals = [np.empty(700) for _ in range(9)]
    expected = np.empty(700)
    fpna.wrap(MPI.COMM_SELF, "layout").Allreduce(x[:SIZE] if SIZE <= ROWS else x, expected, axis=0)
    requests = [comm.Iallreduce(x[RANK], total, blocks=RANK) for total in totals]
    requests[(5 * RANK + 3) % 9].Wait()  # ranks wait for others first
    while not requests[8 - RANK % 3].Test():
        pass
    for request in requests:
        request.wait()
    if not all(same(total, expected) for total in totals):
        yield "totals differ"
    rows, total = owned(), np.empty(700)
    request = comm.Iallreduce(x[rows], total, axis=0)
    while not request.test():
        pass
    fpna.wrap(MPI.COMM_SELF, "layout").Allreduce(x, expected, axis=0)
    if not same(total, expected):
        yield "rows under way"
    comm.Iallreduce(np.ones(2, np.int64), np.empty(2, np.int64)).Wait()
    comm.Iallreduce(x[RANK], total, blocks=RANK)
    comm.release()  # waits for it


@section
def plans_are_kept_and_given_back():
    kept, plans.PLANS = plans.PLANS, 3
    try:
        comm = fpna.wrap(COMM, "exact")
        for n in (1, 2, 3, 4, 1, 5, 4, 1):
            total = np.empty(n)
            comm.Allreduce(np.ones(n), total, blocks=RANK)
            if not same(total, np.full(n, float(SIZE))):
                yield f"{n}: {total}"
            if len(comm._plans.kept) > 3:
                yield f"{len(comm._plans.kept)} plans are kept"
        comm.release()
        if comm._plans.kept:
            yield "plans are left"
    finally:
        plans.PLANS = kept


@section
def communicators_made_from_it():
    comm = fpna.wrap(COMM, "exact")
    cart = comm.Create_cart([SIZE], periods=[True])
    for other in (comm.Dup(), comm.Split(0, RANK), comm.Split_type(MPI.COMM_TYPE_SHARED), cart):
        if not isinstance(other, fpna.Communicator) or other.guarantee != "exact":
            yield f"{type(other)} of {other}"
        total = np.empty(1)
        other.Allreduce(np.ones(1), total, blocks=other.rank)
        if total[0] != other.size:
            yield f"total {total}"
        if other is cart and other.Shift(0, 1) != ((RANK - 1) % SIZE, (RANK + 1) % SIZE):
            yield "a Cartesian communicator without its grid"
        other.Free()
    if comm.Split(MPI.UNDEFINED) != MPI.COMM_NULL:
        yield "undefined colour"
    if not isinstance(comm, MPI.Intracomm) or comm.bcast(RANK) != 0:
        yield "it is no communicator"


class Counted(MPI.Intracomm):
    """A communicator of a program's own class."""

    def own(self):
        return "own", self.size


def made_from(comm):
    """(name, communicator) for every constructor that needs no other program."""
    order = [(RANK + 1) % SIZE]
    yield "Dup", comm.Dup()
    yield "Dup_with_info", comm.Dup_with_info(MPI.INFO_NULL)
    yield "Clone", comm.Clone()
    yield "Split", comm.Split(0, RANK)
    yield "Split_type", comm.Split_type(MPI.COMM_TYPE_SHARED)
    yield "Create", comm.Create(comm.group)
    yield "Create_group", comm.Create_group(comm.group)
    yield "Create_from_group", comm.Create_from_group(comm.group, "fpna")
    yield "Create_cart", comm.Create_cart([SIZE], periods=[True])
    yield "Sub", comm.Create_cart([SIZE, 1]).Sub([True, False])
    yield (
        "Create_graph",
        comm.Create_graph([1 + i for i in range(SIZE)], [(i + 1) % SIZE for i in range(SIZE)]),
    )
    yield "Create_dist_graph", comm.Create_dist_graph([RANK], [1], order)
    yield "Create_dist_graph_adjacent", comm.Create_dist_graph_adjacent([(RANK - 1) % SIZE], order)
    for name, arguments in (("Idup", ()), ("Idup_with_info", (MPI.INFO_NULL,))):
        try:
            made, request = getattr(comm, name)(*arguments)
        except NotImplementedError:  # MPI before 4.0
            continue
        request.Wait()
        yield name, made
    yield "copy", copy.copy(comm)
    yield "pkl5", fpna.wrap(pkl5.Intracomm(comm.plain), "exact").Dup()
    yield "own class", fpna.wrap(Counted(comm.plain), "exact").Dup()
    if SIZE > 1:
        half = comm.Split(RANK % 2)
        yield "Merge", half.Create_intercomm(0, comm.plain, 1 - RANK % 2).Merge()


@section
def every_constructor_keeps_the_promise():
    comm = fpna.wrap(COMM, "exact")
    kinds = {"Create_cart": MPI.Cartcomm, "Sub": MPI.Cartcomm, "Create_graph": MPI.Graphcomm, "pkl5": pkl5.Intracomm,
             "Create_dist_graph": MPI.Distgraphcomm, "own class": Counted}  # fmt: skip
    for name, made in made_from(comm):
        if not isinstance(made, fpna.Communicator) or not isinstance(made, kinds.get(name, MPI.Intracomm)):
            yield f"{name}: {type(made).__mro__}"
            continue
        given = np.array([(1e17, 1.0, -1e17, 1.0)[made.rank % 4]])
        total = np.empty(1)
        made.Allreduce(given, total, blocks=made.rank)
        exact = float(sum(Fraction((1e17, 1.0, -1e17, 1.0)[r % 4]) for r in range(made.size)))
        if made.guarantee != "exact" or total[0] != exact:
            yield f"{name}: {made.guarantee}, {total[0]} instead of {exact}"
        if name == "own class" and made.own() != ("own", SIZE):
            yield "a class of the program's own has lost its method"
        made.release() if name == "copy" else made.Free()
        if name != "copy" and (made != MPI.COMM_NULL or made.plain != MPI.COMM_NULL):
            yield f"{name}: freed, and still there"


@section
def between_two_groups_sums_are_refused():
    if SIZE == 1:
        return
    half = fpna.wrap(COMM, "exact").Split(RANK % 2)
    inter = half.Create_intercomm(0, COMM, 1 - RANK % 2)
    for call, arguments in ((inter.allreduce, (1.5,)), (inter.Allreduce, (np.ones(1), np.empty(1)))):
        if "intracommunicators" not in raised(fpna.ChoiceError, partial(call, *arguments)):
            yield f"{call.__name__} was done"
    if inter.allreduce(1) != inter.remote_size:
        yield "whole numbers"
    inter.Free()
    half.Free()


@section
def narrow_numbers_are_the_exact_sum_rounded_once():
    rng = np.random.default_rng(8)
    for dtype, level, name in itertools.product(
        ("float16", BFLOAT16), ("layout", "exact"), ("Allreduce", "Iallreduce", "Reduce", "Reduce_scatter")
    ):
        n = 3 * SIZE
        x = (rng.integers(-255, 256, (SIZE, n)) * 2.0 ** rng.integers(-8, 8, (SIZE, n))).astype(dtype)
        if dtype == BFLOAT16 and SIZE > 1:  # the middle between two numbers, and a little more
            x[:, :3] = 0
            x[0, :3], x[1, :3] = 1, 2.0**-8
            x[-1, :3] += np.array([2.0**-120, -(2.0**-120), 0]).astype(dtype) * (SIZE > 2)
        right = np.array(
            [nearest(sum(map(Fraction, column)), dtype) for column in x.T.astype(float).tolist()]
        )
        right = right.astype(dtype)
        comm = fpna.wrap(COMM, level)
        total = np.full(n, 7, dtype)
        if name == "Iallreduce":
            comm.Iallreduce(x[RANK], total, blocks=RANK).Wait()
        elif name == "Reduce_scatter":
            total, right = np.full(3, 7, dtype), right[3 * RANK : 3 * RANK + 3]
            comm.Reduce_scatter(x[RANK], total, [3] * SIZE, blocks=RANK)
        else:
            getattr(comm, name)(x[RANK], total, blocks=RANK)
        if (name != "Reduce" or RANK == 0) and not same(total, right):
            yield f"{name} {dtype} {level}: {total}, {right} is right"
        comm.release()


def nearest(value, dtype):
    """A rational number rounded once to a narrow type, ties to even, as float."""
    digits, least = (11, -24) if dtype == "float16" else (8, -133)
    if value == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(value))) - digits + 1
    while abs(value) >= Fraction(2) ** (exponent + digits):
        exponent += 1
    while abs(value) < Fraction(2) ** (exponent + digits - 1):
        exponent -= 1
    unit = Fraction(2) ** max(exponent, least)
    return float(round(value / unit) * unit)  # round() of a Fraction takes ties to even


@section
def values_with_indices_do_not_depend_on_the_order():
    pair = np.dtype([("value", "f8"), ("index", "i4")], align=True)
    comm = fpna.wrap(COMM, "layout")
    for values, op, right in (
        ((1.5, -2.0, 1.5), MPI.MAXLOC, (1.5, 0)),
        ((1.5, -2.0, -2.0), MPI.MINLOC, (-2.0, 1)),
        ((-0.0, 0.0, -0.0), MPI.MAXLOC, (0.0, 0)),
        ((1.0, np.nan, np.nan), MPI.MINLOC, (np.nan, 1)),
    ):
        given, total = np.zeros(1, pair), np.zeros(1, pair)
        given["value"], given["index"] = values[RANK % 3], RANK
        if SIZE == 1:
            right = (values[0] + 0.0, 0)
        if SIZE == 2:
            right = (max(values[:2]) + 0.0, 0) if op == MPI.MAXLOC else right
        comm.Allreduce([given, MPI.DOUBLE_INT], [total, MPI.DOUBLE_INT], op)
        small = comm.allreduce((values[RANK % 3], RANK), op)
        for found in (tuple(total[0].tolist()), small):
            if not (same(*map(np.float64, (found[0], right[0]))) and found[1] == right[1]):
                yield f"{values}: {found}, {right} is right"
    ints = np.array([RANK, RANK], np.int32)
    comm.Allreduce(MPI.IN_PLACE, [ints, MPI.TWOINT], MPI.MAXLOC)
    if ints.tolist() != [SIZE - 1, SIZE - 1]:
        yield f"whole numbers: {ints}"
    comm.release()


@section
def operations_that_round_nothing_can_be_named():
    def greater(a, b, datatype):
        left, right = (np.frombuffer(each, float) for each in (a, b))
        right[:] = np.maximum(left, right)

    own = MPI.Op.Create(greater, commute=True)
    x, total = np.array([1.5 * RANK]), np.empty(1)
    if "exact_ops=[op]" not in raised(
        fpna.ChoiceError, partial(fpna.wrap(COMM, "exact").Allreduce, x, total, own)
    ):
        yield "the way out is not named"
    comm = fpna.wrap(COMM, "exact", exact_ops=[own, max])
    for made in (comm, comm.Dup()):
        made.Allreduce(x, total, own)
        if total[0] != 1.5 * (SIZE - 1) or made.allreduce(1.5 * RANK, max) != 1.5 * (SIZE - 1):
            yield f"{total}"
        made.Scan(x, total, own)
        if total[0] != 1.5 * RANK:
            yield f"Scan {total}"
    if not raised(TypeError, partial(fpna.wrap, COMM, exact_ops=[MPI.SUM])):
        yield "MPI.SUM rounds"
    comm.release()


@section
def libraries_that_take_the_handle_are_told_of():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sys.modules["petsc4py"] = types_module = type(sys)("petsc4py")
        try:
            for level in ("none", "layout"):
                fpna.wrap(COMM, level)
        finally:
            del sys.modules[types_module.__name__]
    told = [str(each.message) for each in caught]
    if len(told) != 1 or not all(word in told[0] for word in ("petsc4py", "fpna run --guarantee")):
        yield f"{told}"
    if {each.filename for each in caught} != {__file__}:
        yield f"the warning is about {caught[0].filename}"


@section
def where_one_rank_refuses_all_do():
    if SIZE == 1:
        return
    comm, odd = fpna.wrap(COMM, "layout"), RANK == SIZE - 1
    strided = np.ones(8)[::2]
    for name, given, out in (
        ("strided", strided if odd else np.ones(4), np.empty(4)),
        ("longer", np.ones(5), np.empty(6 if odd else 5)),
        ("other numbers", np.ones(7, int) if odd else np.ones(7), np.empty(7, int if odd else float)),
    ):
        if not raised(ValueError, partial(comm.Allreduce, given, out)):
            yield f"{name} was taken"
    part = np.empty(2)
    if not raised(ValueError, partial(comm.Reduce_scatter, np.ones(2 * SIZE), part, [2] * SIZE + [1] * odd)):
        yield "counts"
    comm.release()


@section
def buffers_as_mpi_has_them():
    comm, x = fpna.wrap(COMM, "exact"), np.arange(2.0 * SIZE) + RANK
    plain, wrapped = (np.arange(2.0 * SIZE) + RANK for _ in range(2))
    counts = [2 * SIZE - 1] + [0] * (SIZE - 2) + [1] * (SIZE > 1) if SIZE > 1 else [2]
    for call, *arguments in (("Reduce_scatter", counts), ("Reduce_scatter_block",), ("Allreduce",)):
        plain[:] = wrapped[:] = x
        getattr(COMM, call)(MPI.IN_PLACE, plain, *arguments)
        getattr(comm, call)(MPI.IN_PLACE, wrapped, *arguments, blocks=RANK)
        if not same(plain, wrapped):
            yield f"{call} in place: {wrapped}, MPI has {plain}"
    if SIZE > 1:
        part = np.full(counts[RANK], 7.0)
        comm.Reduce_scatter(x, part, counts, blocks=RANK)
        begin = sum(counts[:RANK])
        if not same(part, (x - RANK)[begin : begin + counts[RANK]] * SIZE + SIZE * (SIZE - 1) // 2):
            yield f"Reduce_scatter {counts}: {part}"
    for spec in ([x, (SIZE, 1), MPI.DOUBLE], [x, SIZE, 1, "d"], [x.view(np.uint8), (SIZE, 1), MPI.DOUBLE]):
        longer = np.full(SIZE + 3, 7.0)
        comm.Allreduce(spec, [longer, SIZE], blocks=RANK)
        if not same(longer, np.append((np.arange(SIZE) + 1.0) * SIZE + SIZE * (SIZE - 1) // 2, [7.0] * 3)):
            yield f"a displacement: {longer}"
    unaligned = np.zeros(17, np.uint8)[1:]
    comm.Allreduce([np.array([1.5, RANK]), MPI.DOUBLE], [unaligned, MPI.DOUBLE], blocks=RANK)
    if unaligned.tobytes() != np.array([1.5 * SIZE, SIZE * (SIZE - 1) // 2]).tobytes():
        yield "an unaligned receive buffer"
    comm.release()


@section
def what_the_program_may_have_added_is_told_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for level in ("none", "run", "layout", "exact"):
            comm, total = fpna.wrap(COMM, level), np.empty(2)
            for _ in range(3):
                comm.Allreduce(np.ones(2), total)
            comm.Allreduce(np.ones((1, 2)), total, axis=0)
            comm.Allreduce(np.ones(2), total, MPI.MAX)
            comm.release()
    told = [str(each.message) for each in caught if each.category is fpna.LayoutWarning]
    if len(told) != (2 if RANK == 0 and SIZE > 1 else 0):
        yield f"{len(told)} warnings"
    if told and not all(word in told[0] for word in ("'layout'", "axis=0", "blocks=", "number of ranks")):
        yield told[0]
    places = {each.filename for each in caught if each.category is fpna.LayoutWarning}
    if places - {__file__}:
        yield f"the warning is about {places}"


@section
def what_has_no_promise_is_refused():
    comm, x, total = fpna.wrap(COMM, "layout"), np.ones(2), np.empty(2)
    own = MPI.Op.Create(lambda a, b, t: None)
    vector = MPI.DOUBLE.Create_vector(2, 1, 2)
    strided = np.ones((2, 4))[:, ::2]
    cases = (
        (fpna.ChoiceError, "is not possible for a product", comm.Allreduce, (x, total, MPI.PROD)),
        (fpna.ChoiceError, "the program defines", comm.Allreduce, (x, total, own)),
        (fpna.ChoiceError, "comm.plain.Scan", comm.Scan, (x, total)),
        (fpna.ChoiceError, "comm.plain.exscan", comm.exscan, (1.5,)),
        (fpna.ChoiceError, "comm.plain.Allreduce_init", comm.Allreduce_init, (x, total)),
        (fpna.ChoiceError, "a derived type", comm.Allreduce, ([x, 1, vector], total)),
        (fpna.ChoiceError, "absolute addresses", comm.Allreduce, ([MPI.BOTTOM, 1, MPI.DOUBLE], total)),
        (fpna.ChoiceError, "sum of float128", comm.Allreduce, (x.astype("g"), total.astype("g"))),
        (fpna.ChoiceError, "complex256", comm.Allreduce, (x.astype("G"), total.astype("G"))),
        (fpna.ChoiceError, "prod of complex", comm.Allreduce, (x.astype("D"), total.astype("D"), MPI.PROD)),
        (fpna.ChoiceError, "pairs of a value", comm.Allreduce, (x, total, MPI.MAXLOC)),
        (fpna.ChoiceError, "pairs (value, index)", comm.allreduce, (1.5, MPI.MAXLOC)),
        (ValueError, "displacement 3", comm.Allreduce, ([x, (1, 3), MPI.DOUBLE], total)),
        (ValueError, "a reduction takes one count", comm.Allreduce, ([x, (1, 1, 0), MPI.DOUBLE], total)),
        (ValueError, "not contiguous", comm.Allreduce, (strided, total)),
        (TypeError, "is not a buffer", comm.Allreduce, (1.5, total)),
        (ValueError, "byte order", comm.Allreduce, (x.astype(">f8"), total)),
        (ValueError, "recvbuf is float32", comm.Allreduce, (x, total.astype("f4"))),
        (ValueError, "pass axis=0", comm.Allreduce, (np.ones((3, 2)), total)),
        (ValueError, "5 elements requested, but the buffer has 2", comm.Allreduce, ([x, 5], total)),
    )  # fmt: skip
    for kind, text, call, arguments in cases:
        if text not in (error := raised(kind, partial(call, *arguments))):
            yield f"{text}: {error}"
    for keyword, text in (({"axis": 1}, "pass axis=0"), ({"blocks": [0, 1, 2]}, "3 numbers of blocks")):
        error = raised(ValueError, partial(comm.Allreduce, np.ones((2, 2)), total, **keyword))
        if text not in error:
            yield f"{text}: {error}"
    integers = np.ones(2, int)
    if "floating-point" not in raised(fpna.ChoiceError, partial(comm.Allreduce, integers, integers, axis=0)):
        yield "rows of integers"
    if comm.plain.Scan(np.ones(1), total[:1]) is not None or total[0] != RANK + 1:
        yield "the plain communicator"
    comm.Scan(np.ones(1, int), np.empty(1, int))
    for wrong in (None, MPI.COMM_NULL, 3):
        if not raised(TypeError, partial(fpna.wrap, wrong)):
            yield f"{wrong} was wrapped"
    for arguments in ({"guarantee": "total"}, {"ordering": "ring"}, {"ordering": "rin"}):
        if not raised(fpna.ChoiceError, partial(fpna.wrap, COMM, **arguments)):
            yield f"{arguments} was taken"
    own.Free()
    vector.Free()


@section
def in_checked_mode_ranks_that_ask_for_different_things_all_hear_of_it():
    if SIZE == 1:
        return
    comm, total = fpna.wrap(COMM, "layout", check=True), np.empty(2)
    odd = RANK == SIZE - 1
    for given in (np.ones(2, "f4" if odd else "f8"), np.ones(3 if odd else 2), 1.5 if odd else np.ones(2)):
        out = np.empty_like(given) if isinstance(given, np.ndarray) else total
        if "rank" not in raised(CallMismatch, partial(comm.Allreduce, given, out)):
            yield f"{given!r} was taken"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        comm.Allreduce(np.ones(2), total)
    if total[0] != SIZE:
        yield f"afterwards {total}"
    comm.release()


if __name__ == "__main__":
    report()
