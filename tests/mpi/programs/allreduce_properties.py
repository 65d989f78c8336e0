"""All-reduce under MPI: every section returns what failed on this rank; rank 0 prints all of it as JSON.

Run by tests/mpi/test_allreduce_mpi.py as `mpirun -n P python allreduce_properties.py`.
"""

import time

import numpy as np
from mpi4py import MPI
from sections import COMM, LABELS, labelled, pairs, raised, report, section

from kernels import exact
from kernels.allreduce import PlanMismatch, RanksDisagree, Reduction, ReplayError, orderings, plan
from kernels.allreduce.simulator import simulate
from kernels.guarantees import ChoiceError
from tests.order_free import defined

RANK, SIZE = COMM.rank, COMM.size
# Over ranks: those over blocks need to know who owns which.
SCHEDULED = [o.name for o in orderings() if o.scheduled and "owners" not in o.needs]
BLOCKS = (9, 0, 3, 17, 1, 4, 2, 8)  # of each rank: none, one, and so many that NumPy might sum them pairwise
LENGTHS = sorted({0, 1, SIZE - 1, SIZE, 5, 1000})


def numbers(seed, shape, dtype=np.float64):
    """The same on every rank; of near magnitudes, where another order most often has other bits."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype) == np.int64:
        return rng.integers(-(2**40), 2**40, shape)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-1, 2, shape)).astype(dtype)


def all_contributions(seed, shape, dtype=np.float64):
    """Contributions of every rank."""
    return [numbers([seed, rank], (BLOCKS[rank], *shape), dtype) for rank in range(SIZE)]


@section
def schedules_give_the_bits_of_the_simulator():
    shapes = [(n,) for n in LENGTHS] + [(), (3, 2)]
    for name, dtype, shape in pairs(SCHEDULED, ("float64", "float32", "int64"), shapes):
        with plan(COMM, name, shape, dtype) as reducer:
            for seed in (1, 2, 3, 1):
                xs = all_contributions(seed, shape, dtype)
                total = reducer(xs[RANK])
                expected = simulate(name, xs)[RANK]
                if total.tobytes() != expected.tobytes() or total.shape != shape:
                    yield f"{name} {dtype} {shape} seed {seed}: {total} is not {expected}"


@section
def order_free_sums_give_the_bits_of_the_simulator():
    for dtype in ("float64", "float32"):
        for shape in [(n,) for n in LENGTHS] + [(), (3, 2)]:
            with plan(COMM, "direct", shape, dtype, accumulation="exact") as reducer:
                for seed in (1, 2):
                    xs = all_contributions(seed, shape, dtype)
                    total = reducer(xs[RANK])
                    if total.tobytes() != simulate("direct", xs, accumulation="exact")[RANK].tobytes():
                        yield f"{dtype} {shape} seed {seed}: {total}"


@section
def order_free_sums_have_one_hash():
    """By every schedule, for two ways of dealing 24 blocks out to the ranks: that of all blocks together."""
    for dtype in ("float64", "float32"):
        blocks = numbers(7, (24, 6), dtype) * (10.0 ** np.arange(-12, 12)[:, None]).astype(dtype)
        expected = defined(blocks).tobytes()
        for owner in (np.arange(24) * SIZE // 24, np.random.default_rng(SIZE).integers(0, SIZE, 24)):
            mine = np.flatnonzero(owner == RANK)
            for o in orderings():
                if o.scheduled:
                    reduction = Reduction(o.name, 6, dtype, accumulation="exact", check=True)
                    with plan(COMM, reduction, blocks=mine) as reducer:
                        if reducer(blocks[mine]).tobytes() != expected:
                            yield f"{reduction.label} {dtype}"


@section
def words_accumulated_by_the_caller_are_summed_exactly():
    a, b = numbers(3, (SIZE, 50)), numbers(4, (SIZE, 50))
    words = exact.zeros((2,))
    exact.add_products(words[0], a[RANK], b[RANK])
    exact.add_products(words[1], a[RANK], a[RANK])
    before = words.tobytes()
    everything = exact.zeros((2,))
    exact.add_products(everything[0], a, b)
    exact.add_products(everything[1], a, a)
    for name in ("direct", "ring", "recursive-doubling", "block-tree"):
        reduction = Reduction(name, 2, accumulation="exact")
        with plan(COMM, reduction, blocks=[RANK, RANK + SIZE]) as reducer:
            if reducer.sum_words(words).tobytes() != exact.round(everything).tobytes():
                yield f"{name}: sum_words differs from the sum of all products on one rank"
    with plan(COMM, "ring", (2,), accumulation="compensated") as reducer:
        if "need accumulation 'exact'" not in raised(ChoiceError, lambda: reducer.sum_words(words)):
            yield "words were summed in pairs"
    with labelled("direct in exact", (2,), check=True) as reducer:
        if reducer.sum_words(words).tobytes() != exact.round(everything).tobytes():
            yield "sum_words differs from the sum of all products on one rank"
        if words.tobytes() != before:
            yield "sum_words changed the caller's words"
        if "expects words" not in raised(ValueError, lambda: reducer.sum_words(exact.zeros((3,)))):
            yield "words of another shape were taken"
    if "was freed" not in raised(RuntimeError, lambda: reducer.sum_words(words)):
        yield "sum_words worked after free"


@section
def the_library_sums_integers_as_we_do_and_agrees_across_ranks():
    for shape in [(n,) for n in LENGTHS] + [(), (20_000,)]:
        xs = all_contributions(1, shape, np.int64)
        with plan(COMM, "library", shape, "int64", check=True) as reducer:
            if (reducer(xs[RANK]) != np.concatenate(xs).sum(axis=0)).any():
                yield f"library int64 {shape}"
        xs = all_contributions(1, shape)
        blocks = np.concatenate(xs)
        # Any order of n additions errs by less than n * 2**-53 / (1 - n * 2**-53) of the sum of magnitudes.
        allowed = (len(blocks) + SIZE) * np.finfo(float).eps * np.abs(blocks).sum(axis=0)
        with plan(COMM, "library", shape, check=True) as reducer:
            if (np.abs(reducer(xs[RANK]) - defined(np.concatenate(xs))) > allowed).any():
                yield f"library float64 {shape}"


@section
def an_arrival_log_explains_the_bits_and_replays_them():
    for shape in ((), (2,), (1000,), (40_000,)):
        calls = 6
        xs = [all_contributions(seed, shape) for seed in range(calls)]
        with plan(COMM, "arrival", shape, check=True) as reducer:
            totals = [reducer(x[RANK]).tobytes() for x in xs]
            log = reducer.drain_orders()
            if reducer.drain_orders():
                yield "drained orders come again"
        if len(log) != (calls if RANK == 0 else 0):
            yield f"{shape}: {len(log)} orders in the log"
        if any(order.dtype != np.uint16 or order.shape != (SIZE,) or order[0] != 0 for order in log):
            yield f"{shape}: {log} is no log"
        orders = COMM.bcast(log, 0)
        for x, total, order in zip(xs, totals, orders, strict=True):
            if simulate("arrival", x, order)[RANK].tobytes() != total:
                yield f"{shape}: the logged order {order} does not explain the bits"
        # Turned, so that a replay that adds as messages come cannot pass.
        turned = [np.concatenate([order[:1], order[:0:-1]]) for order in orders]
        for replayed in (orders, turned):
            with plan(COMM, "arrival", shape, replay=iter(replayed)) as reducer:
                again = [reducer(x[RANK]).tobytes() for x in xs]
                if RANK == 0 and [list(o) for o in reducer.drain_orders()] != [list(o) for o in replayed]:
                    yield f"{shape}: a replay does not log what it replays"
                if "all used up" not in raised(ReplayError, lambda: reducer(xs[0][RANK])):  # noqa: B023
                    yield f"{shape}: an exhausted log was not noticed"
            expected = [simulate("arrival", *pair)[RANK].tobytes() for pair in zip(xs, replayed, strict=True)]
            if again != expected:
                yield f"{shape}: a replay gives other bits"


@section
def contributions_are_added_in_the_order_in_which_they_come():
    x = numbers(5, (SIZE, 1, 3))
    for seed in range(3):
        script = [0, *(np.random.default_rng(seed).permutation(SIZE - 1) + 1).tolist()]
        # A busy machine may delay a rank beyond its turn: then again, with longer pauses.
        for pause in (0.03, 0.1, 0.3, 1.0, 3.0):
            with plan(COMM, "arrival", (3,)) as reducer:
                reducer(x[RANK])
                reducer.drain_orders()
                COMM.Barrier()
                time.sleep(pause * script.index(RANK))
                total = reducer(x[RANK]).tobytes()
                order = COMM.bcast([o.tolist() for o in reducer.drain_orders()], 0)[0]
            if order == script:
                break
        if order != script:
            yield f"the order was {order}, not that of the messages, {script}"
        if total != simulate("arrival", x, order)[RANK].tobytes():
            yield f"the bits are not those of {order}"


@section
def logs_that_do_not_fit_are_refused_on_all_ranks():
    straight = list(range(SIZE))
    cases = [
        ([straight, [*straight, SIZE]], "order 1 of the log to replay has shape"),
        ([[0] * SIZE] if SIZE > 1 else [[1]], "is not rank 0 followed by each of the other ranks"),
    ]
    for log, message in cases:
        if message not in raised(ReplayError, lambda: plan(COMM, "arrival", (2,), replay=log)):  # noqa: B023
            yield f"a log with {message} was taken"
    if "only 'arrival' has" not in raised(ReplayError, lambda: plan(COMM, "ring", (2,), replay=[straight])):
        yield "a ring was replayed"
    if SIZE > 1:
        log = [straight] if RANK else None
        if "not on rank 0" not in raised(ReplayError, lambda: plan(COMM, "arrival", (2,), replay=log)):
            yield "a log on other ranks than 0 was ignored"
    with plan(COMM, "arrival", (2,), replay=None if RANK else [straight]) as reducer:
        reducer(np.ones((1, 2)))  # rank 0's log is enough


@section
def ranks_that_hold_other_bits_are_named():
    for name in ("library", "direct", "direct in exact"):
        with labelled(name, (2,), check=True, name="energy") as reducer:
            reducer(np.ones((1, 2)))
            add = reducer._reduce
            culprit = SIZE - 1

            def flip(x, add=add, culprit=culprit):
                total = add(x)
                if culprit == RANK:
                    total.view(np.uint64)[1] ^= 1
                return total

            reducer._reduce = flip
            message = raised(RanksDisagree, lambda: reducer(np.ones((1, 2))))
        if SIZE == 1:
            if message:
                yield f"one rank disagrees with itself: {message}"
        elif not all(part in message for part in ("'energy'", repr(name), "call 2", f"rank {culprit} got")):
            yield f"{name}: {message or 'nothing was raised'}"


@section
def ranks_that_ask_for_different_things_learn_so():
    odd = SIZE - 1
    if SIZE > 1:
        for wrong in ({"shape": (3,)}, {"dtype": "float32"}, {"ordering": "linear"}, {"check": True}):
            asked = {"ordering": "ring", "shape": (2,), **(wrong if odd == RANK else {})}
            message = raised(PlanMismatch, lambda: plan(COMM, **asked))  # noqa: B023
            if f"rank {odd}: " not in message or "ring" not in message:
                yield f"{wrong}: {message or 'nothing was raised'}"
        name = "rnig" if odd == RANK else "ring"
        message = raised(ChoiceError if odd == RANK else PlanMismatch, lambda: plan(COMM, name, (2,)))
        if f"rank {odd}: ChoiceError: unknown all-reduce ordering 'rnig'" not in message and odd != RANK:
            yield f"an unknown ordering on one rank: {message or 'nothing was raised'}"
        if "library, arrival, " not in message:
            yield f"an unknown ordering on one rank lists nothing: {message}"


@section
def what_cannot_be_planned_or_added_says_why():
    cases = [
        (ChoiceError, {"ordering": "rnig"}, "library, arrival, "),
        (TypeError, {"dtype": "complex128"}, "float16, bfloat16, int64 in native byte order, not complex128"),
        (TypeError, {"dtype": "float16", "ordering": "library"}, "reduces float64, float32, int64 in"),
        (ChoiceError, {"dtype": "int64", "accumulation": "exact"}, "float16, bfloat16, not int64"),
        (TypeError, {"dtype": ">f8"}, "not >f8"),
        (ValueError, {"shape": (2, -1)}, "negative"),
    ]
    for error, arguments, message in cases:
        if message not in raised(error, lambda: plan(COMM, **arguments)):  # noqa: B023
            yield f"plan({arguments}) did not say {message!r}"
    for name in LABELS:
        with labelled(name, (2,), name="energy") as reducer:
            bad = [
                (TypeError, np.ones((1, 2), np.float32), "of type float64, got float32"),
                (ValueError, np.ones((1, 3)), "of shape (k, 2), k >= 0, got (1, 3)"),
                (ValueError, np.ones(2), "got (2,)"),
            ]
            for error, x, message in bad:
                text = raised(error, lambda: reducer(x))  # noqa: B023
                if message not in text or "'energy'" not in text:
                    yield f"{name}: {text or 'nothing was raised'}"
            total = reducer([[1.0, 2.0]])  # whatever NumPy takes for such an array is one
            if total.tolist() != [SIZE, 2.0 * SIZE]:
                yield f"{name}: a list gave {total}"
        reducer.free()  # again: does nothing
        if "was freed" not in raised(RuntimeError, lambda: reducer(np.ones((1, 2)))):
            yield f"{name} worked after free"
        if reducer.reduction.label != name or reducer.guarantee != reducer.reduction.guarantee:
            yield f"{name} presents itself as {reducer.ordering}, {reducer.guarantee}"


@section
def a_number_that_is_none_spreads_and_infinities_stay():
    for name in LABELS:
        x = np.array([[1.0, np.inf, -np.inf if RANK else np.inf, np.nan if RANK == SIZE - 1 else 1.0]])
        with np.errstate(invalid="ignore"), labelled(name, (4,), check=True) as reducer:
            total = reducer(x)
        mixed = total[2] == np.inf if SIZE == 1 else np.isnan(total[2])
        if not (total[0] == SIZE and total[1] == np.inf and mixed and np.isnan(total[3])):
            yield f"{name}: {total}"


@section
def the_caller_s_messages_are_left_alone():
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    mine, theirs = np.full(2, float(RANK)), np.zeros(2)
    request = COMM.Irecv(theirs, MPI.ANY_SOURCE, MPI.ANY_TAG)
    for name in LABELS:
        with labelled(name, (2,)) as reducer:
            reducer(np.ones((1, 2)))
    COMM.Send(mine, after, 3)
    request.Wait()
    if theirs[0] != before:
        yield f"received {theirs}, a reducer's message"


@section
def reducers_give_back_what_they_took():
    # An MPI library has about 2,000 communicators.
    for _ in range(2500 if SIZE == 2 else 3):
        with plan(COMM, "ring", (2,)):
            pass
    for name in LABELS:
        reducer = labelled(name, (2,))
        requests = reducer._requests
        del reducer
        if any(request != MPI.REQUEST_NULL for request in requests):
            yield f"{name}: a reducer that was dropped kept its requests"


if __name__ == "__main__":
    report()
