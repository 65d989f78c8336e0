"""How programs use DistributedDataParallel with the hook: uneven inputs, subclasses, several types in one model, a
GradScaler. Every section yields what failed on this rank. Run by tests/mpi/test_ddp_mpi.py."""

import contextlib

import torch
from sections import COMM, raised, report_over_gloo, section
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import fpna

RANK, SIZE = COMM.rank, COMM.size
WIRES = [
    "as is",
    "float16",
    "bfloat16",
    "e4m3",
    "e5m2",
    "fp8",
    "int8",
    "int16",
    "sign",
    "table:n=4",
    "float32",
]


def network(dtype=torch.float32):
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 1)).to(
        dtype
    )


def hooked(inner=None, axes=(), kind=DistributedDataParallel, **about):
    model = kind(network() if inner is None else inner, bucket_cap_mb=0.002, **about)  # several buckets
    model.register_comm_hook(None, fpna.ddp_hook(**dict(axes)))
    return model


def batch(step, rank=RANK):
    return torch.randn(4, 20, generator=torch.Generator().manual_seed(10 * step + rank))


def own_gradients(inner, x):
    """Of the network alone; zeros for no inputs."""
    inner.zero_grad()
    if x is not None:
        inner(x).square().sum().backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in inner.parameters()]


@section
def processes_without_inputs_give_zeros():
    for about in ({}, {"static_graph": True}, {"find_unused_parameters": True}):
        for counts in ([4, 2, 1, 3], [0, 3, 3, 1]):  # batches by rank
            if about.get("static_graph") and not all(counts):
                continue  # where DDP itself fails, with and without a hook
            for axes in ({}, {"ordering": "ring"}, {"wire": "fp8:feedback=on"} if counts[0] else {}):
                model, inner = hooked(axes=axes, **about), network()
                seen = []
                with model.join() if SIZE > 1 else contextlib.nullcontext():
                    for step in range(counts[RANK]):
                        model.zero_grad()
                        model(batch(step)).square().sum().backward()
                        seen.append([p.grad.clone() for p in model.parameters()])
                for step in range(max(counts[:SIZE])):
                    own = own_gradients(inner, batch(step) if step < counts[RANK] else None)
                    means = [sum(COMM.allgather(g.double())) / SIZE for g in own]
                    if step < counts[RANK] and "wire" not in axes:
                        near = all(
                            torch.allclose(a.double(), b, rtol=1e-5, atol=1e-6)
                            for a, b in zip(seen[step], means, strict=True)
                        )
                        if not near:
                            yield f"{about}, {counts}, {axes}: step {step} has another mean"


@section
def the_mean_is_over_the_processes_with_inputs_where_join_asks():
    for about in ({}, {"static_graph": True}):
        for counts in ([4, 2, 1, 3], [0, 3, 3, 1], [3, 3, 3, 3]):
            if about and not all(counts):
                continue  # where DDP itself fails
            for axes in (
                {},
                {"ordering": "ring"},
                {"ordering": "recursive-doubling", "wire": "float32:hops=every"},
            ):
                model, inner = hooked(axes=axes, **about), network()
                seen = []
                with (
                    Join([model], divide_by_initial_world_size=False)
                    if SIZE > 1
                    else contextlib.nullcontext()
                ):
                    for step in range(counts[RANK]):
                        model.zero_grad()
                        model(batch(step)).square().sum().backward()
                        seen.append([p.grad.clone() for p in model.parameters()])
                for step in range(max(counts[:SIZE])):
                    own = own_gradients(inner, batch(step) if step < counts[RANK] else None)
                    over = sum(step < count for count in counts[:SIZE])
                    totals = [sum(COMM.allgather(g.double())) for g in own]
                    for found, total in zip(seen[step] if step < counts[RANK] else (), totals, strict=False):
                        mean = (total / over).float()
                        if not (
                            torch.allclose(found, mean, 1e-5, 1e-6) if axes else torch.equal(found, mean)
                        ):
                            yield f"{about}, {counts}, {axes}: step {step} has another mean than over {over}"


class Scaled(DistributedDataParallel):
    """A subclass with a forward of its own."""

    def forward(self, x):
        return 2 * super().forward(x)


class Logged(DistributedDataParallel):
    """A subclass that registers the hook itself."""

    registered = 0

    def register_comm_hook(self, state, hook):
        self.registered += 1
        super().register_comm_hook(state, hook)


class Wrapping(DistributedDataParallel):
    """A subclass that registers a function around the hook, which DDP then does not see."""

    def register_comm_hook(self, state, hook):
        super().register_comm_hook(state, lambda state, bucket: hook(state, bucket))


@section
def subclasses_have_the_mean():
    for kind, factor in ((Scaled, 4), (Logged, 1)):
        model, inner = hooked(kind=kind), network()
        for step in range(3):
            model.zero_grad()
            model(batch(step)).square().sum().backward()
            means = [
                sum(COMM.allgather(factor * g.double())) / SIZE for g in own_gradients(inner, batch(step))
            ]
            for parameter, mean in zip(model.parameters(), means, strict=True):
                if not torch.equal(parameter.grad, mean.float()):
                    yield f"{kind.__name__}, step {step}: another mean"
    if not getattr(model, "registered", 0):
        yield "the method of the subclass was not called"
    model = hooked(kind=Wrapping)
    if "a model without this hook" not in raised(ValueError, lambda: model(batch(0)).sum().backward()):
        yield "a function around the hook was taken"


class Several(nn.Module):
    """Layers in float32, bfloat16 and float64."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        kinds = (torch.float32, torch.bfloat16, torch.float64, torch.bfloat16)
        self.layers = nn.ModuleList(nn.Linear(20, 20, dtype=kind) for kind in kinds)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x.to(layer.weight.dtype)).tanh()
        return x.float()


@section
def every_type_of_bucket_has_its_mean():
    for about in ({}, {"static_graph": True}):
        model, inner = hooked(Several(), {"check": True}, **about), Several()
        for step in range(3):  # DDP arranges its buckets anew after the first
            model.zero_grad()
            model(batch(step)).square().sum().backward()
            for parameter, own in zip(model.parameters(), own_gradients(inner, batch(step)), strict=True):
                total = sum(COMM.allgather(own.double()))
                unit = torch.finfo(own.dtype).eps
                if parameter.grad.dtype != own.dtype:
                    yield f"step {step}: the gradient of {own.dtype} is {parameter.grad.dtype}"
                # Rounded once: at most half a unit from the mean.
                off = (parameter.grad.double() - total / SIZE).abs()
                near = off <= 0.51 * unit * (total / SIZE).abs() + torch.finfo(own.dtype).tiny
                if own.dtype != torch.float64 and not near.all():
                    yield f"{about}, step {step}, {own.dtype}: not rounded once"
                if not torch.allclose(parameter.grad.double(), total / SIZE, rtol=2 * unit, atol=1e-12):
                    yield f"{about}, step {step}, {own.dtype}: another mean"


@section
def a_scaler_sees_what_is_not_finite():
    for wire in WIRES:
        for bad in (None, "inf", "nan"):
            model = hooked(axes={"wire": wire})
            scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            before = [p.detach().clone() for p in model.parameters()]
            x = batch(0)
            if bad and RANK == SIZE - 1:
                x[0, 0] = float(bad)
            scaler.scale(model(x).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            moved = any(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
            if moved != (bad is None) or (scaler.get_scale() == 8.0) != (bad is None):
                yield f"{wire}, {bad}: {'a' if moved else 'no'} step at scale {scaler.get_scale()}"


@section
def ranks_that_ask_for_different_things_are_all_refused():
    if SIZE == 1:
        return
    for axes, expected in (
        ({"ordering": "ring" if RANK else "direct"}, "processes pass different arguments"),
        ({"check": RANK == 0}, "processes pass different arguments"),
    ):
        if expected not in raised(ValueError, lambda axes=axes: hooked(axes=axes)):
            yield f"{axes} was taken"
    model = DistributedDataParallel(network())
    hook = fpna.ddp_hook()
    message = raised(TypeError, lambda: model.register_comm_hook("a state" if RANK == 0 else None, hook))
    if "the state is str: pass None" not in message:
        yield f"a state of rank 0 alone: {message!r}"


if __name__ == "__main__":
    report_over_gloo()
