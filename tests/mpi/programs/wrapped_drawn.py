"""Drawn reductions of a wrapped communicator, compared with plain mpi4py on the same input.

Run by tests/mpi/wrapped_drawn.py as `mpirun -n P python wrapped_drawn.py CASES SEED FIRST`. Sums are of small whole
numbers, so that any order has the same bits: memory must be equal byte for byte, what lies behind the total included.
Where plain mpi4py raises on all ranks, the wrapped call must, with an error of the same class; where one rank alone is
wrong, for which plain mpi4py waits for ever, the wrapped call must raise on all.
"""

import faulthandler
import sys
import warnings
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch
from mpi4py import MPI
from sections import COMM

import fpna

RANK, SIZE = COMM.rank, COMM.size
# mpi4py compares handles: MPI.INT, as which it takes NumPy's numbers, and MPI.INT32_T are two types.
TYPES = {kind: MPI.Datatype.fromcode(np.dtype(kind).char) for kind in ("f8", "f4", "c16", "c8", "i4", "u2")}
NARROW = {
    "f2": np.dtype("f2"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}  # that plain mpi4py takes at best as arrays
CALLS = (
    "Allreduce", "Iallreduce", "Reduce", "Ireduce", "Reduce_scatter_block", "Ireduce_scatter_block", "Reduce_scatter",
    "Ireduce_scatter",
)  # fmt: skip
OPS = {"SUM": (MPI.SUM, np.sum), "MIN": (MPI.MIN, np.min), "MAX": (MPI.MAX, np.max)}
FORMS = (
    "array", "typed", "counted", "both", "displaced", "four", "bytes", "longer", "2d", "fortran", "memoryview",
    "tensor", "code", "read-only",
)  # fmt: skip
WRONG_BUFFERS = (
    "strided", "short", "long", "other type", "negative", "swapped", "derived", "none", "number", "beyond", "five",
    "text", "no code",
)  # fmt: skip
WRONG_COUNTS = ("sum", "length", "sign")
LEVELS = ("none", "run", "layout", "exact")
VECTOR = MPI.DOUBLE.Create_vector(1, 1, 2).Commit()
PATIENCE_S = 60
wrapped = {}


@dataclass(frozen=True)
class Case:
    """One reduction; `wrong`: what is wrong with `at` (0: what is sent, 1: received, 2: counts) of the ranks `who`."""

    seed: tuple
    kind: str
    call: str
    op: str
    root: int
    counts: list
    n: int
    in_place: bool
    level: str
    uncounted: bool
    wrong: str = ""
    at: int = 0
    who: tuple = ()

    @property
    def dtype(self):
        return NARROW.get(self.kind) or np.dtype(self.kind)

    @property
    def scatters(self):
        return "scatter" in self.call

    @property
    def counted(self):
        return self.call.endswith("scatter")

    @property
    def rooted(self):
        return self.call in ("Reduce", "Ireduce")

    @property
    def receives(self):
        return not self.rooted or self.root == RANK

    @property
    def data(self):
        """Contributions of all ranks."""
        rng = np.random.default_rng([*self.seed, 1])
        x = rng.integers(0, 16, (SIZE, self.n)).astype(self.dtype)
        return x + 1j * rng.integers(0, 16, x.shape).astype(x.real.dtype) if x.dtype.kind == "c" else x


def draw(seed, number):
    rng = np.random.default_rng([seed, number])
    kind = str(rng.choice(list(TYPES) if rng.random() < 0.9 else list(NARROW)))
    call = str(rng.choice(CALLS))
    op = "SUM" if kind[0] == "c" or rng.random() < 0.7 else str(rng.choice(["MIN", "MAX"]))
    counts = [int(rng.integers(0, 5)) * int(rng.random() < 0.75) for _ in range(SIZE)]
    counts = [counts[0]] * SIZE if call.endswith("block") else counts
    n = sum(counts) if "scatter" in call else int(rng.integers(0, 9))
    level, in_place, uncounted = str(rng.choice(LEVELS)), bool(rng.random() < 0.3), bool(rng.random() < 0.3)
    more = (seed, number), kind, call, op, int(rng.integers(SIZE)), counts, n, in_place, level, uncounted
    if kind in NARROW or rng.random() < 0.7:
        return Case(*more)
    wrong, at = str(rng.choice(WRONG_BUFFERS)), int(rng.integers(2))
    if call.endswith("scatter") and rng.random() < 0.4:
        wrong, at = str(rng.choice(WRONG_COUNTS)), 2
    who = tuple(range(SIZE)) if rng.random() < 0.6 else (int(rng.integers(SIZE)),)
    if call in ("Reduce", "Ireduce") and at == 1:  # others receive nothing
        who = (more[4],)
    return Case(*more, wrong, at, who)


def formed(rng, x, form, kind, count):
    """`x` (n,) in a form that mpi4py takes, saying that it has `count` elements; and the whole memory."""
    n, memory = x.size, x
    if form in ("displaced", "four", "longer"):
        before, after = int(rng.integers(0, 4)) if form != "longer" else 0, int(rng.integers(0, 4))
        memory = np.full(before + n + after, 7, x.dtype)
        memory[before : before + n] = x
        given = {"displaced": [memory, (count, before), kind], "four": [memory, count, before, kind]}
        return given.get(form, [memory, count]), memory
    if form in ("2d", "fortran") and n and n % 2 == 0:
        memory = np.array(x.reshape(2, -1)) if form == "2d" else np.asfortranarray(x.reshape(-1, 2).T)
        return memory, memory
    if form == "tensor" and x.dtype not in (np.uint16, NARROW["bf16"]):
        return torch.from_numpy(x), memory
    given = {
        "typed": [x, kind], "counted": [x, count], "both": [x, count, kind], "bytes": [x.view(np.uint8), count, kind],
        "memoryview": memoryview(x) if kind else x, "code": [x, x.dtype.char],
    }  # fmt: skip
    return given.get(form, x), memory


def broken(what, x, kind, received):
    """`x` as something that is wrong; None where nothing can be."""
    other = np.dtype("f4" if x.dtype != np.float32 else "f8")
    return {
        "strided": [np.ones(2 * x.size + 4, x.dtype)[::2]], "short": [x[:-1]] if x.size else None,
        "long": [np.ones(x.size + 1, x.dtype)], "other type": [x.astype(other)] if x.size else None,
        "negative": [[x, -1, kind]], "swapped": [x.astype(x.dtype.newbyteorder(">"))], "derived": [[x, 1, VECTOR]],
        "none": [None] if received else None, "number": [1.5],
        "beyond": [[x, (0, x.size + 5), kind]], "five": [[x, 1, 0, kind, 0]],
        "text": ["text"], "no code": [[x, "~"]],
    }[what]  # fmt: skip


def arguments(case):
    """Arguments of this rank, in forms of its own, and the memory of the receive buffer; None where nothing can be
    wrong here."""
    rng = np.random.default_rng([*case.seed, 2, RANK])
    forms = ["array", "array"] if case.kind in NARROW else [str(form) for form in rng.choice(FORMS, 2)]
    mpi, mine = TYPES.get(case.kind), case.data[RANK].copy()
    place = case.in_place and case.receives
    told = case.counts[0] if case.call.endswith("block") else None
    total = mine.copy() if place else np.full(case.counts[RANK] if case.scatters else case.n, 9, case.dtype)
    of_recv = told if place and told is not None else total.size
    recv, memory = formed(rng, total, "array" if forms[1] == "read-only" else forms[1], mpi, of_recv)
    mine.flags.writeable = forms[0] != "read-only"
    send = MPI.IN_PLACE
    if not place:
        send, _ = formed(rng, mine, forms[0], mpi, mine.size if told is None else told)
    counts = None if case.uncounted and not case.in_place else case.counts
    given = [
        send,
        recv,
        *([counts] if case.counted else []),
        OPS[case.op][0],
        *([case.root] if case.rooted else []),
    ]
    if case.wrong and RANK in case.who:
        if case.at == 2:
            given[2] = {
                "sum": [*case.counts[:-1], case.counts[-1] + 1], "length": [*case.counts, 0],
                "sign": [*case.counts[:-1], case.counts[-1] - 9],
            }[case.wrong]  # fmt: skip
        else:
            instead = (
                None
                if case.at == 0 and place
                else broken(case.wrong, [mine, total][case.at], mpi, case.at == 1)
            )
            if instead is None:
                return None
            given[case.at] = instead[0]
    return given, memory


def attempted(comm, case, given, more):
    """The error of a call, or None."""
    try:
        request = getattr(comm, case.call)(*given, **more)
        if request is not None:
            request.Wait()
    except Exception as error:
        return error
    return None


def family(error):
    """Errors that count as the same."""
    return "works" if error is None else "TypeError" if isinstance(error, TypeError) else "ValueError"


def checked(case):
    """What is wrong with a case on this rank, as text; all ranks go the same way."""
    if case.wrong and not all(COMM.allgather(arguments(case) is not None)):
        return None
    if case.wrong and (len(case.who) < SIZE or case.rooted):  # the root alone knows how long the total is
        return alone(case)
    plain_error, right = None, None
    if case.kind not in NARROW:
        given, right = arguments(case)
        plain_error = attempted(COMM, case, given, {})
        families = set(COMM.allgather(family(plain_error)))
        if len(families) > 1:
            return f"plain mpi4py does not agree with itself: {families}"
    elif case.level == "none":
        return None
    given, found = arguments(case)
    rounds = case.dtype.kind not in "iu"
    error = attempted(
        wrapped[case.level], case, given, {"blocks": RANK} if rounds and case.level != "none" else {}
    )
    if error is not None or plain_error is not None:
        alike = family(error) == family(plain_error)
        alike |= isinstance(plain_error, MPI.Exception | KeyError) and error is not None
        return None if alike else f"wrapped {error!r}, plain {plain_error!r}"
    if case.kind in NARROW:
        total = OPS[case.op][1](case.data.astype(float), axis=0).astype(case.dtype)
        begin = sum(case.counts[:RANK])
        right = total[begin : begin + case.counts[RANK]] if case.scatters else total
        found, right = (found[: right.size], right) if case.receives else (found, found)
    elif case.in_place and case.scatters:
        return behind(case, found, right)
    return None if found.tobytes(order="A") == right.tobytes(order="A") else f"{found}, MPI has {right}"


def behind(case, found, right):
    """In place MPI does not say what a reduce-scatter leaves behind this rank's part; here it is what was there."""
    whole, before = found.reshape(-1, order="A"), arguments(case)[1].reshape(-1, order="A")
    begin = 0
    while not np.array_equal(before[begin : begin + case.n], case.data[RANK]):
        begin += 1  # of longer memory, where what is meant begins
    end = begin + case.counts[RANK]
    expected = before.copy()
    expected[begin:end] = right.reshape(-1, order="A")[begin:end]
    return None if expected.tobytes() == whole.tobytes() else f"{whole}, MPI has {right}"


def alone(case):
    """Some ranks are wrong: all must raise, on a communicator that has not agreed on anything."""
    if case.level == "none":
        return None
    comm = fpna.wrap(COMM, case.level)
    given, _ = arguments(case)
    families = COMM.allgather(family(attempted(comm, case, given, {})))
    comm.release()
    return f"some ranks raise: {families}" if "works" in families else None


def main(cases, seed, first):
    warnings.simplefilter("ignore")
    wrapped.update({level: fpna.wrap(COMM, level) for level in LEVELS})
    failed = 0
    for number in range(first, cases):
        faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
        case = draw(seed, number)
        if RANK == 0 and number % 50 == 0:
            print("case", number, flush=True)
        told = [each for each in COMM.allgather(checked(case)) if each]
        failed += bool(told)
        if told and RANK == 0:
            print(f"FAILED {case}: {told[0]}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    if RANK == 0:
        print(f"{cases - first} cases, {failed} failed", flush=True)


main(*map(int, sys.argv[1:4]))
