"""The hook of DistributedDataParallel under MPI: every section yields what failed on this rank; rank 0 prints all.

Run by tests/mpi/test_ddp_mpi.py as `mpirun -n P python ddp.py`; with `--cuda`, models are on a GPU.
"""

import contextlib
import functools
import gc
import sys

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI
from sections import COMM, raised, report_over_gloo, section
from torch.nn.parallel import DistributedDataParallel

import fpna
from kernels import _native
from kernels.allreduce.simulator import simulate
from kernels.wires import cells_of, codec
from miniapps.programs import ddp_groups

RANK, SIZE = COMM.rank, COMM.size
DEVICE = "cuda" if "--cuda" in sys.argv else "cpu"


def made():
    """A model of six tensors, of which three are small."""
    torch.manual_seed(3)
    layers = torch.nn
    return layers.Sequential(
        layers.Linear(40, 60), layers.ReLU(), layers.Linear(60, 30), layers.Tanh(), layers.Linear(30, 1)
    ).to(DEVICE)


def stream(step):
    """On a GPU, every other step on a stream of its own."""
    if DEVICE == "cpu" or step % 2 == 0:
        return contextlib.nullcontext()
    torch.cuda.synchronize()
    return torch.cuda.stream(torch.cuda.Stream())


def backward(model, step):
    x = torch.randn(32, 40, generator=torch.Generator().manual_seed(100 * step + RANK)).to(DEVICE)
    for parameter in model.parameters():
        parameter.grad = None
    with stream(step):
        (model(x).square().sum() * 10.0**RANK).backward()
        return [parameter.grad.cpu().numpy().copy() for parameter in model.parameters()]


def hooked(network=None, group=None, hook=None, cap=0.005, **axes):
    model = DistributedDataParallel(
        made() if network is None else network, bucket_cap_mb=cap, process_group=group
    )  # several buckets
    model.register_comm_hook(None, fpna.ddp_hook(**axes) if hook is None else hook)
    return model


class Given(torch.nn.Module):
    """Parameters whose gradients are those that are given, a list of vectors; in order, the last to be ready first."""

    def __init__(self, *lengths, dtype=torch.float32):
        super().__init__()
        self.held = torch.nn.ParameterList(torch.zeros(n, dtype=dtype) for n in lengths)

    def forward(self, given):
        return sum((p * g).sum() for p, g in zip(self.held, given, strict=True))


def gradients(model, given):
    """The gradients of such a model, for what this rank gives."""
    for parameter in model.parameters():
        parameter.grad = None
    model(given).backward()
    return [parameter.grad.detach().clone() for parameter in model.parameters()]


def mean_of(model, number, dtype=torch.float32, n=3):
    """The mean of one number, of a tensor of two dimensions, which wires encode."""
    return gradients(model, [torch.full((n,), number, dtype=dtype)])[0][0].item()


def told(expected, message):
    if expected not in message:
        yield f"{expected!r} is not in {message!r}"


CASES = [
    {"accumulate": "working"},
    {"ordering": "ring"},
    {},
    {"wire": "fp8"},
    {"wire": "table:n=4", "accumulate": "exact"},
    {"ordering": "recursive-doubling", "wire": "sign:hops=every"},
]


@section
def gradients_are_the_simulated_mean():
    for axes in CASES:
        model, plain = hooked(**axes), made()
        for step in range(3):  # DDP arranges its buckets anew after the first
            own = COMM.allgather(backward(plain, step))
            seen = backward(model, step)
            for number, gradient in enumerate(seen):
                wire = axes.get("wire", "as is")
                if axes.get("ordering") in ("ring", "recursive-doubling"):
                    # These add by chunks of a bucket: alike on all ranks, and near the mean.
                    near = np.allclose(
                        gradient, sum(each[number] for each in own) / SIZE, rtol=1e-4, atol=1e-3
                    )
                    if not near and wire == "as is":
                        yield f"{axes}, step {step}, tensor {number}: far from the mean"
                    if len(set(COMM.allgather(gradient.tobytes()))) != 1:
                        yield f"{axes}, step {step}, tensor {number}: other bits on other ranks"
                    continue
                stacked = [each[number].reshape(1, -1) for each in own]
                if wire == "as is":
                    total = simulate("direct", stacked, accumulation="working")[RANK] / np.float32(SIZE)
                    if not axes:
                        wide = np.sum(stacked, axis=0, dtype=np.float64)[0] / SIZE
                        total = wide.astype(np.float32)
                        if not np.allclose(gradient.reshape(-1), wide, rtol=2**-24, atol=0):
                            yield f"step {step}, tensor {number}: not rounded once"
                        continue
                else:
                    cells = cells_of(gradient.size, [gradient.shape])
                    over = codec(wire).over
                    came = np.stack([over(x[0], cells) for x in stacked])
                    total = over(_exact_mean(came), cells)
                if gradient.tobytes() != total.tobytes():
                    yield f"{axes}, step {step}, tensor {number}: other bits than simulated"


def _exact_mean(rows):
    out = np.empty(rows.shape[1], rows.dtype)
    _native.exact_mean(list(rows), len(rows), out)
    return out


@section
def what_is_kept_belongs_to_a_parameter():
    # Equal shapes in one bucket, which DDP arranges in another order after the first step.
    for wire in ("sign:feedback=on", "table:n=4,feedback=on"):
        sizes = [1e6, 1.0, 1e-3]
        given = [[torch.full((8, 8), size) * (1 + step) for size in sizes] for step in range(4)]
        hook = fpna.ddp_hook(wire=wire)
        models = [hooked(Grids(3), hook=hook, cap=25), hooked(Grids(3), hook=hook, cap=25)]
        for step in range(4):
            for which, model in enumerate(models):
                scaled = [g * 10.0**which for g in given[step]]
                for gradient, expected in zip(gradients(model, scaled), scaled, strict=True):
                    if not (gradient - expected).abs().max() <= 0.5 * expected.abs().max():
                        yield f"{wire}, model {which}, step {step}: {gradient[0, 0]} for {expected[0, 0]}"
    # With feedback, what an element lost comes with the next step, whatever bucket it is in by then.
    model, sums, wanted = hooked(Grids(3), wire="int8:scale=match,feedback=on"), 0, 0
    for step in range(6):
        x = [torch.linspace(0.1, 1, 64).reshape(8, 8) ** (i + 1 + step) for i in range(3)]
        seen = gradients(model, x)
        sums, wanted = (
            [s + g for s, g in zip(sums or [0] * 3, seen, strict=True)],
            [s + g for s, g in zip(wanted or [0] * 3, x, strict=True)],
        )
    for i, (a, b) in enumerate(zip(sums, wanted, strict=True)):
        if not torch.allclose(a, b, atol=0.02):
            yield f"tensor {i}: the sums of six steps lie {(a - b).abs().max()} apart"


class Grids(Given):
    """As `Given`, of matrices, which wires encode."""

    def __init__(self, count, dtype=torch.float32, n=8):
        super().__init__(*[1] * count, dtype=dtype)
        self.held = torch.nn.ParameterList(torch.zeros(n, n, dtype=dtype) for _ in range(count))


class Raises(torch.autograd.Function):
    """Whose backward raises, if it is told to."""

    @staticmethod
    def forward(ctx, x, raises):
        ctx.raises = raises
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.raises:
            raise KeyError("in the backward pass")
        return gradient, None


class Fragile(torch.nn.Module):
    """Linear layers, before one of which the backward pass raises."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(50, 50) for _ in range(6))

    def forward(self, x, where):
        for i, layer in enumerate(self.layers):
            x = Raises.apply(layer(x), i == where)
        return x.sum()


@section
def a_backward_pass_that_raises_leaves_all_whole():
    for axes in ({}, {"ordering": "library", "accumulate": "working"}, {"wire": "sign:feedback=on"}):
        hook = fpna.ddp_hook(**axes)
        for round_ in range(3):
            model = hooked(Fragile(), hook=hook)
            x = torch.ones(4, 50) * (1 + RANK)
            for _ in range(2):  # DDP arranges its buckets anew after the first
                model(x, None).backward()
            where = 1 + (RANK + round_) % 3  # each rank at another place
            if "in the backward" not in raised(Exception, functools.partial(_step, model, x, where)):
                yield f"{axes}: nothing was raised"
            victims = [np.full(2550, 7, np.float32) for _ in range(32)]
            model = None
            gc.collect()
            again = hooked(Fragile(), hook=hook)
            again(x, None).backward()
            expected = plain_gradients(Fragile(), x)
            for parameter, mean in zip(again.parameters(), expected, strict=True):
                near = np.allclose(parameter.grad.numpy(), mean, rtol=1e-5, atol=1e-4)
                if not near and "wire" not in axes:
                    yield f"{axes}, round {round_}: after an exception gradients are others"
            COMM.Barrier()
            if any((victim != 7).any() for victim in victims):
                yield f"{axes}: memory of others was overwritten"


def _step(model, x, where):
    model(x, where).backward()


def plain_gradients(network, x):
    network(x, None).backward()
    return [sum(COMM.allgather(p.grad.numpy())) / SIZE for p in network.parameters()]


@section
def the_group_of_a_model_decides():
    halves = [list(range(SIZE // 2)), list(range(SIZE // 2, SIZE))] if SIZE > 1 else [[0]]
    groups = [dist.new_group(ranks) for ranks in halves]
    mine, ranks = next((g, r) for g, r in zip(groups, halves, strict=True) if RANK in r)
    part = COMM.Split(ranks[0], RANK)
    expected = sum(10.0 ** (1 + r) for r in ranks) / len(ranks)
    for comm in (None, part):
        model = hooked(Given(3), group=mine, comm=comm)
        for _ in range(2):
            seen = mean_of(model, 10.0 ** (1 + RANK))
            if seen != np.float32(expected):
                yield f"over {ranks}: {seen}, not {expected}"
    both = hooked(Given(3))
    wanted = np.float32(sum(10.0 ** (1 + r) for r in range(SIZE)) / SIZE)
    if abs(mean_of(both, 10.0 ** (1 + RANK)) - wanted) > 1e-6 * wanted:
        yield "the mean over all is another"
    COMM.Barrier()


@section
def means_are_formed_before_they_are_rounded():
    half, brain = torch.float16, torch.bfloat16
    for axes in ({}, {"ordering": "ring"}, {"accumulate": "float64"}, {"ordering": "ring", "accumulate": "exact"},
                 {"ordering": "library"}, {"accumulate": "compensated"}):  # fmt: skip
        for number, dtype in (
            (40000.0, half), (2.0**-24, half), (float("inf"), half), (3e38, brain), (0.1, brain), (3e38, torch.float32),
            (1.7e308, torch.float64), (float("-inf"), torch.float32),
        ):  # fmt: skip
            x = torch.tensor(number, dtype=dtype)
            seen = mean_of(hooked(Given(3, dtype=dtype), **axes), number, dtype)
            near = dtype == torch.float64 and "ordering" in axes and abs(seen - number) <= 1e-14 * abs(number)
            if seen != x.item() and not near:
                yield f"{axes}, {dtype}: {SIZE} x {x.item()} has the mean {seen}"
    seen = mean_of(hooked(Given(3)), float("nan"))
    if seen == seen:
        yield "NaN has vanished"


@section
def a_wire_carries_the_mean_and_what_is_not_finite():
    casts = ("fp8", "e5m2", "float16", "e4m3", "bfloat16")
    others = ("int8", "int16", "sign", "table:n=4", "float32")
    for wire in (*casts, *others):
        scales = ("", "scale=match", "scale=tensor", "hops=every")
        for more in (
            scales if wire in casts else scales[::3] if wire == "float32" else (*scales[:2], scales[3])
        ):
            text = f"{wire}{',' if ':' in wire else ':'}{more}" if more else wire
            ordering = "ring" if "every" in more else "direct"
            model = hooked(Grids(1, n=64), wire=text, ordering=ordering)
            for bad in (None, float("inf"), float("nan")):
                x = torch.full((64, 64), 400.0 if "e4m3" in wire else 10000.0)
                if bad is not None:
                    x *= 1e-6
                    if RANK == SIZE - 1:
                        x[5, 5] = bad
                seen = gradients(model, [x])[0]
                largest = 0.13 * x[0, 0]
                if bad is None and not (seen - x).abs().max() <= largest:
                    yield f"{text}: {SIZE} x {x[0, 0]} is {seen[0, 0]}"
                if bad is not None and torch.isfinite(seen).all():
                    yield f"{text}: {bad} of one rank came as {seen[5, 5]}"
    seen = gradients(hooked(Grids(1, n=64), wire="fp8"), [torch.full((64, 64), 10000.0)])[0]
    if (seen != 10240).any():
        yield "10000 over fp8 is not 10240"


@section
def communicators_come_back():
    for i in range(6):
        network = torch.nn.Sequential(*[torch.nn.Linear(3 + i, 3 + i) for _ in range(6)])
        model = hooked(network, cap=1e-5)
        model(torch.ones(2, 3 + i)).sum().backward()
        if i == 2:
            planned = _planned()
        del model, network
        gc.collect()
    if _planned() > planned:
        yield f"{_planned()} sums are planned after 6 models, {planned} after 3"


def _planned():
    return sum(len(means) for group in ddp_groups._groups.values() for means in group._means.values())


@section
def what_cannot_be_is_told():
    yield from told(
        "is not a parameter of fp8", raised(fpna.ChoiceError, lambda: fpna.ddp_hook(wire="fp8:n=3"))
    )
    yield from told(
        "choose ordering direct", raised(fpna.ChoiceError, lambda: fpna.ddp_hook(ordering="ring", wire="fp8"))
    )
    yield from told(
        "adds over blocks", raised(fpna.ChoiceError, lambda: fpna.ddp_hook(ordering="block-tree"))
    )
    if SIZE > 1:
        yield from told(
            "are not ranks of one communica", raised(ValueError, lambda: hooked(comm=MPI.COMM_SELF))
        )
    sparse = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Embedding(5, 3, sparse=True))
    yield from told("gradient of 1.weight is sparse", raised(TypeError, lambda: hooked(sparse)))
    yield from told("0.weight are float64", raised(TypeError, lambda: hooked(made().double(), wire="fp8")))


if __name__ == "__main__":
    report_over_gloo()
