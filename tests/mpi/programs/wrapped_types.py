"""Every type x collective x operation x guarantee of a wrapped communicator, tried on two ranks.

Run by tests/wrapped_types.py as `mpirun -n 2 python wrapped_types.py [--quick]`. Prints JSON, {type: {call: {operation:
{guarantee: outcome}}}}. An outcome is "right": the value is that of exact arithmetic, on both ranks; "refused": all
ranks raise ChoiceError with one sentence; "MPI refuses": plain mpi4py raises, and so does the wrapped call. Anything
else is "WRONG" and says why. `--quick`: some of the types, one call of each kind.
"""

import json
import operator
import sys
import warnings
from fractions import Fraction
from functools import reduce

import ml_dtypes
import numpy as np
import torch
from mpi4py import MPI
from sections import COMM

import fpna
from miniapps.programs.messages import PAIRS
from miniapps.programs.operations import rounding

RANK, SIZE = COMM.rank, COMM.size
LEVELS = ("none", "run", "layout", "exact")
CALLS = (
    "Allreduce", "Iallreduce", "Reduce", "Ireduce", "Reduce_scatter_block", "Ireduce_scatter_block", "Reduce_scatter",
    "Ireduce_scatter", "allreduce", "reduce", "Scan", "Exscan", "Iscan", "Iexscan", "scan", "exscan", "Allreduce_init",
    "Reduce_init", "Reduce_scatter_block_init", "Reduce_scatter_init", "Scan_init", "Exscan_init",
)  # fmt: skip
QUICK = ("Allreduce", "allreduce", "Reduce_scatter", "Scan")
QUICK_TYPES = ("numpy.float16", "numpy.float64", "numpy.float128", "numpy.complex128", "numpy.int64",
               "torch.bfloat16", "MPI.LONG_DOUBLE", "MPI.DOUBLE_INT", "MPI.CXX_DOUBLE_COMPLEX")  # fmt: skip
OPERATIONS = {
    "SUM": (MPI.SUM,), "PROD": (MPI.PROD,), "MIN, MAX": (MPI.MIN, MPI.MAX), "MAXLOC, MINLOC": (MPI.MAXLOC, MPI.MINLOC),
    "LAND, LOR, LXOR": (MPI.LAND, MPI.LOR, MPI.LXOR), "BAND, BOR, BXOR": (MPI.BAND, MPI.BOR, MPI.BXOR),
}  # fmt: skip
TORCH = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "complex128",
    "complex64",
    "int64",
    "int8",
    "uint8",
    "bool",
)
QUADRUPLE = ("MPI.REAL16", "MPI.COMPLEX32")  # NumPy has no such type, so that their totals cannot be checked
LOWER = (
    "SUM",
    "PROD",
    "MIN, MAX",
    "MAXLOC, MINLOC",
)  # of mpi4py's objects; of the others one rank raises alone


def types():
    """{name: (dtype, what makes a buffer of a NumPy array, whether lower-case calls take it)}."""
    found = {}
    for code in "?bBhHiIlLefdgFDG":
        found[f"numpy.{np.dtype(code).name}"] = np.dtype(code), lambda x: x, True
    for name in ("bfloat16", "float8_e4m3fn"):
        found[f"ml_dtypes.{name}"] = np.dtype(getattr(ml_dtypes, name)), lambda x: x, False
    for name in TORCH:
        dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
        found[f"torch.{name}"] = dtype, tensor, False
    for name in sorted(dir(MPI)):
        kind = getattr(MPI, name)
        if not isinstance(kind, MPI.Datatype) or kind == MPI.DATATYPE_NULL or not kind.Get_size():
            continue
        dtype = pair(name) if name in PAIRS or name == "INT_INT" else np.dtype(kind.tocode())
        dtype = np.dtype(f"u{kind.Get_size()}") if dtype.kind in "SU" else dtype
        found[f"MPI.{name}"] = dtype, lambda x, kind=kind: [x, kind], False
    for name, kind in (("F90 real", MPI.Datatype.Create_f90_real(15, 300)),
                       ("F90 complex", MPI.Datatype.Create_f90_complex(6, 30))):  # fmt: skip
        dtype = np.dtype(f"{'c' if 'complex' in name else 'f'}{kind.Get_size()}")
        found[f"MPI {name}"] = dtype, lambda x, kind=kind: [x, kind], False
    return found


def pair(name):
    kinds = PAIRS.get(name, "i4,i4").split(",")
    return np.dtype(list(zip(("value", "index"), kinds, strict=True)), align=True)


def tensor(x):
    """The array as a tensor that shares its memory."""
    if x.dtype == np.dtype(ml_dtypes.bfloat16):
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def contribution(dtype, rank):
    """Two elements of this rank for each rank: a number with a bit in the last place, and one beyond the range of
    narrower types, whose sum, product, least and greatest are numbers of the type."""
    x = np.zeros(2 * SIZE, dtype)
    if dtype.names:
        x["value"], x["index"] = contribution(dtype["value"], rank), rank + 3
    elif dtype.kind == "c":
        part = contribution(x.real.dtype, rank)
        x.real, x.imag = part, -part if rank == 0 else part
    elif dtype.kind in "fV":
        info = np.finfo(dtype) if dtype.kind == "f" else ml_dtypes.finfo(dtype)
        one = dtype.type(1) + dtype.type(info.eps)
        big = info.max / dtype.type(32)
        x[:] = np.tile(np.array([one, big] if rank == 0 else [0.5, 0], dtype), SIZE)
    elif dtype.kind in "biu":
        x[:] = np.tile([3, 0] if rank == 0 else [6, 2], SIZE)
    return x


def exact(value):
    """A number as a Fraction, or a pair of them; as it is where it is not finite."""
    if isinstance(value, np.void) and value.dtype.names:
        return exact(value["value"]), int(value["index"])
    if value.dtype.kind == "c":
        return exact(value.real), exact(value.imag)
    if value.dtype.kind in "biu":
        return int(value)
    number = value if value.dtype.kind == "f" else float(value)
    return Fraction(*number.as_integer_ratio()) if np.isfinite(number) else number


def right(dtype, op, ranks):
    """What `op` of the contributions of these ranks is, by exact arithmetic, one entry for each element."""
    columns = zip(*([exact(value) for value in contribution(dtype, rank)] for rank in ranks), strict=True)
    return [reduce(lambda a, b: combined(dtype, op, a, b), column) for column in columns]


def combined(dtype, op, a, b):
    if dtype.names:
        first = a if (a[0] > b[0]) == (op == MPI.MAXLOC) else b
        return (a[0], min(a[1], b[1])) if a[0] == b[0] else first
    if dtype.kind == "c":
        if op == MPI.PROD:
            return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]
        return a[0] + b[0], a[1] + b[1]
    python = {
        "SUM": operator.add, "PROD": operator.mul, "MIN": min, "MAX": max, "MAXLOC": max, "MINLOC": min,
        "LAND": lambda a, b: int(bool(a) and bool(b)), "LOR": lambda a, b: int(bool(a) or bool(b)),
        "LXOR": lambda a, b: int(bool(a) != bool(b)), "BAND": operator.and_, "BOR": operator.or_,
        "BXOR": operator.xor,
    }  # fmt: skip
    return next(function for name, function in python.items() if getattr(MPI, name) == op)(a, b)


def called(comm, call, dtype, make, op):
    """What this rank receives; None where it receives nothing."""
    sent, scattered = contribution(dtype, RANK), "scatter" in call
    if call[0].islower():
        given = sent[0].item() if dtype.kind == "b" else sent[0]
        paired = op == MPI.MAXLOC or op == MPI.MINLOC
        result = getattr(comm, call)((given, RANK + 3) if paired else given, op)
        return None if result is None else np.atleast_1d(np.asarray(result[0] if paired else result))
    result = np.zeros(2 if scattered else 2 * SIZE, dtype)
    arguments = [make(sent), make(result)] + [[2] * SIZE] * (scattered and "block" not in call)
    request = getattr(comm, call)(*arguments, op)
    if request is not None:
        if call.endswith("_init"):
            request.Start()
        request.Wait()
        if call.endswith("_init"):
            request.Free()
    receives = RANK == 0 or call.removeprefix("I").removesuffix("_init").lower() != "reduce"
    return result if receives else None


def expected(call, dtype, op):
    """The right answer, as exact numbers; None on ranks that receive nothing."""
    ranks = range(SIZE)
    if "xscan" in call:
        ranks = range(RANK)
    elif "can" in call:
        ranks = range(RANK + 1)
    answer = right(dtype, op, ranks) if len(ranks) else None
    return answer[2 * RANK : 2 * RANK + 2] if answer is not None and "scatter" in call else answer


def outcome(comm, call, dtype, make, op, mpi_refuses=True):
    """What becomes of one call on this rank: "right", "refused", "MPI refuses", or what went wrong."""
    try:
        found = called(comm, call, dtype, make, op)
    except fpna.ChoiceError as error:
        return "refused" if "\n" not in str(error) and len(str(error)) < 500 else f"WRONG words: {error}"
    except NotImplementedError:
        return "not there"
    except Exception as error:  # of mpi4py, of the library
        return "MPI refuses" if mpi_refuses else f"WRONG {type(error).__name__}: {error}"
    answer = None if found is None else expected(call, dtype, op)
    if answer is None or [exact(value) for value in found] == answer[: len(found)]:
        return "right"
    return f"WRONG {found}"


def agreed(own):
    """The outcome of all ranks; where they differ, all of them."""
    everyone = COMM.allgather(own)
    return own if len(set(everyone)) == 1 else f"WRONG {everyone}"


def tried(comms, name, call, op, dtype, make):
    """{guarantee: outcome} of one call."""
    plain = agreed(outcome(COMM, call, dtype, make, op))
    found = {}
    for level, comm in comms.items():
        cell = agreed(outcome(comm, call, dtype, make, op, plain != "right"))
        if level == "none" and name in QUADRUPLE:
            cell = "MPI refuses" if plain == "MPI refuses" else "right"
        elif level == "none" and cell != plain:
            cell = f"WRONG {cell}, and MPI: {plain}"
        found[level] = cell
    return found


def main(quick):
    warnings.simplefilter("ignore")
    table = {}
    comms = {level: fpna.wrap(COMM, level) for level in LEVELS}
    for name, (dtype, make, objects) in types().items():
        if quick and name not in QUICK_TYPES:
            continue
        for call in QUICK if quick else CALLS:
            lower = call[0].islower()
            for words, operations in OPERATIONS.items():
                if lower and not (objects and words in LOWER[: 2 if dtype.kind == "c" else None]):
                    continue
                if rounding(dtype) and words[:4] in ("LAND", "BAND", "MAXL" * (name in QUADRUPLE)):
                    continue  # of which MPI says nothing
                found = [tried(comms, name, call, op, dtype, make) for op in operations]
                same = all(each == found[0] for each in found)
                table.setdefault(name, {}).setdefault(call, {})[words] = (
                    found[0] if same else {level: f"WRONG {found}" for level in LEVELS}
                )
        for comm in comms.values():
            comm.release()
    if RANK == 0:
        print(json.dumps(table))


main("--quick" in sys.argv)
