"""All-reduces in floating-point environments drawn for each rank, against the bits in the default environment and,
where a sum is correctly rounded, against rational arithmetic.

Run by tests/mpi/test_environments_mpi.py as `mpirun -n P python environments.py`; many cases:

    mpirun -n 3 python tests/mpi/programs/environments.py --cases 20000 [--seed 1]
"""

import argparse
import random
import sys
import time
import warnings
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from mpi4py import MPI
from sections import COMM, LABELS, labelled, report, section

sys.path.insert(0, str(Path(__file__).parents[3]))

import fpna
from kernels.allreduce import Reduction, plan
from kernels.guarantees import ChoiceError
from miniapps.programs import ddp
from miniapps.programs.ddp_sums import Group
from tests import floating
from tests.kernels.environments import TYPES, numbers

RANK, SIZE = COMM.rank, COMM.size
LENGTHS = (1, 1, 2, 5, 40, 700)
KEPT = 40  # plans at once
plans: dict = {}
wrapped = {}


def nearest(total: Fraction, dtype) -> float:
    """A rational number to the nearest float64 or float32, ties to even, by integers alone."""
    info = np.finfo(dtype)
    if total == 0:
        return 0.0
    sign, total = (-1 if total < 0 else 1), abs(total)
    exponent = total.numerator.bit_length() - total.denominator.bit_length()
    exponent -= total < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, int(info.minexp)) - int(info.nmant))
    whole, rest = divmod(total, unit)
    whole += rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1)
    rounded = whole * unit
    return sign * (float("inf") if rounded > Fraction(float(info.max)) else float(rounded))


def correctly_rounded(rows, dtype):
    """The sums of finite rows (k, n)."""
    return np.array(
        [nearest(sum(map(Fraction, column)), dtype) for column in rows.T.astype(float).tolist()], dtype
    )


def planned(draw):
    """A reducer of any ordering and accumulation, called in one of its ways."""
    labels = [label for label in LABELS if label != "arrival" and not label.startswith("library")]
    label = draw.choice(labels)
    if " in " not in label:
        label += draw.choice(("", " in float64", " in compensated", " in exact"))
    name, n = draw.choice(list(TYPES)), draw.choice(LENGTHS)
    operation = draw.choice(("sum", "sum", "sum", "prod", "min", "max"))
    way, k = draw.randrange(3), draw.choice((0, 1, 1, 2, 3))
    key = label, name, n, operation, k if way == 2 else -1
    x = np.stack([numbers(random.Random(f"{draw.random()} {RANK} {i}"), TYPES[name], n) for i in range(k)] or
                 [np.zeros(n, TYPES[name])])[:k]  # fmt: skip
    if key not in plans:
        while len(plans) >= KEPT:
            plans.pop(next(iter(plans))).free()
        blocks = {"blocks": list(range(RANK * k, RANK * k + k))} if way == 2 else {}
        try:
            plans[key] = plan(COMM, Reduction.named(label, (n,), name, operation=operation), **blocks)
        except ChoiceError:
            return None
    reducer = plans[key]

    def call():
        if way == 0:
            return reducer(x).copy()
        if way == 1:
            reducer.start(x)
            reducer.progress()
            return reducer.finish().copy()
        for i in range(k):
            reducer.add(RANK * k + i, x[i])
        return reducer.finish().copy()

    exact = " in exact" in label and operation == "sum"
    return f"{key} way {way} k {k}", call, x if exact and name in ("float64", "float32") else None


def a_wrapped(draw):
    """A call of a wrapped communicator."""
    level = draw.choice(("run", "layout", "exact"))
    comm = wrapped.setdefault(level, fpna.wrap(COMM, level))
    name, n = draw.choice(("float64", "float32", "float16", "complex128", "complex64")), draw.choice(LENGTHS)
    own = random.Random(f"{draw.random()} {RANK}")
    base = {"complex128": "float64", "complex64": "float32"}.get(name, name)
    parts = numbers(own, TYPES[base], 2 * n if name.startswith("c") else n)
    x = parts.view(name) if name.startswith("c") else parts.astype(name)
    way = draw.randrange(5)
    if way == 3:
        x = np.concatenate([x] * SIZE)
    out = np.zeros(n if way != 4 else len(x), x.dtype)

    def call():
        out.fill(0)
        match way:
            case 0 | 4:
                comm.Allreduce(x, out)
            case 1:
                comm.Iallreduce(x, out).Wait()
            case 2:
                comm.Reduce(x, out, MPI.SUM, SIZE - 1)
            case 3:
                comm.Reduce_scatter_block(x, out)
        return out.copy()

    def objects():
        return np.asarray(comm.allreduce(given))

    def refused(made):
        try:
            made()
        except ChoiceError:
            return True
        return False

    if draw.random() < 0.2:
        given = (2**60 + 1 + RANK) if draw.random() < 0.5 and RANK else float(parts[0])
        return f"wrap {level} allreduce", objects, None
    if refused(call):
        return None
    exact = level == "exact" and way in (0, 1) and name in ("float64", "float32")
    return f"wrap {level} {name} {n} way {way}", call, x[None] if exact else None


class Model:
    """What a hook sees of a model of DistributedDataParallel, in whose backward passes torch alone would compute."""

    def __init__(self, tensors):
        self.module, self.static_graph = torch.nn.ParameterList(tensors), False
        self.parameters_to_ignore: set[str] = set()
        self._join_config, self._divide_by_initial_world_size = SimpleNamespace(enable=False), True


def a_mean(draw):
    """Buckets of gradients, as DistributedDataParallel hands them over."""
    axes = {"accumulate": draw.choice(("working", "float64", "exact", None))}
    dtype = draw.choice((torch.float32, torch.float64, torch.float16, torch.bfloat16))
    sizes = [draw.choice((1, 5, 40)) for _ in range(2)]
    own = random.Random(f"{draw.random()} {RANK}")
    kind = np.float64 if dtype == torch.float64 else np.float32
    given = [torch.from_numpy(numbers(own, kind, n)).to(dtype) for n in sizes]
    model, hook = Model(given), fpna.ddp_hook(**axes)
    parameters = list(model.module.parameters())
    if not groups:
        groups.append(Group(COMM.Dup()))
    hook._trainings.append(ddp.Training(groups[0], hook._axes, model))

    def bucket(i, tensor):
        last, parameter = i == len(sizes) - 1, parameters[i]
        return SimpleNamespace(buffer=lambda: tensor, index=lambda: i, gradients=lambda: [tensor],
                               is_last=lambda: last, parameters=lambda: [parameter])  # fmt: skip

    def call(model=model):  # which the hook holds weakly
        tensors = [x.clone() for x in given]
        futures = [hook(None, bucket(i, tensor)) for i, tensor in enumerate(tensors)]
        return np.concatenate([future.wait().view(torch.uint8).numpy() for future in futures])

    return f"hook {axes} {dtype} {sizes}", call, None


groups: list = []
CARRIERS = (planned, planned, a_wrapped, a_wrapped, a_mean)


def tried(seed):
    """What is wrong on this rank in the case of that seed. Collective."""
    draw = random.Random(seed)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = draw.choice(CARRIERS)(draw)
        if made is None:
            return []
        what, call, rows = made
        expected = call()
        own = random.Random(f"{seed} {RANK}")
        # On all ranks, or on one.
        default = draw.random() < 0.3 and draw.randrange(SIZE) != RANK
        environment = floating.Environment() if default else floating.drawn(own, floating.LOUD)
        with environment.chosen() as left:
            total = call()
    found = [] if total.tobytes() == expected.tobytes() else [f"{total!r} in place of {expected!r}"]
    found += floating.troubles(environment, left, floating.INEXACT)
    all_rows = COMM.allgather(rows)
    if rows is not None and all(np.isfinite(part).all() for part in all_rows):
        right = correctly_rounded(np.concatenate(all_rows), rows.dtype)
        if (right + 0.0).tobytes() != total.tobytes():
            found.append(f"{total!r}, and rounded from the exact sum {right!r}")
    return [f"seed {seed}, {what}, {environment}: {trouble}" for trouble in found]


@section
def sums_do_not_depend_on_the_environment_of_any_rank():
    if floating.HERE:
        for seed in range(60):
            yield from tried(seed)


@section
def what_the_library_adds_stays_in_the_environment_of_the_program():
    if not floating.HERE:
        return
    x, out = np.array([1e-310]), np.zeros(1)
    reducer, comm = labelled("library", (1,)), fpna.wrap(COMM, "none")
    with floating.Environment(flush=True, zeros=True).chosen():
        totals = [reducer(x[None]).copy()]
        comm.Allreduce(x, out)
        totals.append(out.copy())
        plain = np.zeros(1)
        COMM.Allreduce(x, plain)
    if any(total.tobytes() != plain.tobytes() for total in totals):
        yield f"{totals} and plain MPI {plain}"
    reducer.free()
    comm.release()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the others follow")
    options = parser.parse_args()
    begin, failed = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.cases):
        for trouble in tried(seed):
            failed += 1
            print(f"rank {RANK}: {trouble}", flush=True)
    failed = COMM.allreduce(failed)
    if RANK == 0:
        print(f"{options.cases} cases on {SIZE} ranks, {failed} failures, {time.monotonic() - begin:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        raise SystemExit(main())
    report()
