"""FSDP2 with `fpna.fsdp_reduce_scatter` beside DistributedDataParallel with the hook: every section yields what failed
on this rank. Run by tests/mpi/test_sharded_mpi.py."""

import copy
import functools

import torch
from sections import COMM, raised, report_over_gloo, section
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import fpna

RANK, SIZE = COMM.rank, COMM.size


def network(dtype=torch.float32):
    torch.manual_seed(5)
    layers = [nn.Linear(37, 61), nn.Tanh(), nn.Linear(61, 2), nn.Tanh(), nn.Linear(2, 1, bias=False)]
    return nn.Sequential(*layers).to(dtype)  # lengths that ranks do not divide, and fewer rows than ranks


def sharded(dtype=torch.float32, dimension=0, mesh=None, **policy):
    model = (
        network(dtype) if not dimension else nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12))
    )
    options = {"mesh": mesh or init_device_mesh("cpu", (SIZE,))}
    if policy:
        options["mp_policy"] = MixedPrecisionPolicy(**policy)
    if dimension:
        options["shard_placement_fn"] = lambda p: torch.distributed.tensor.Shard(min(dimension, p.ndim - 1))
    fully_shard(model[2], **options)
    fully_shard(model, **options)
    return model


def weights(model):
    """By name, the bits of the whole tensors."""
    module = model.module if isinstance(model, DistributedDataParallel) else model
    whole = {
        name: p.full_tensor() if hasattr(p, "full_tensor") else p for name, p in module.named_parameters()
    }
    return {name: p.detach().contiguous().view(torch.uint8).numpy().tobytes() for name, p in whole.items()}


def trained(model, steps=4, first=0):
    for step in range(first, first + steps):
        dtype = next(model.parameters()).dtype
        x = torch.randn(8, 37, generator=torch.Generator().manual_seed(100 * step + RANK)).to(dtype)
        model.zero_grad()
        (model(x).square().sum() * 3.0**RANK).backward()
        descend(model.parameters())
    return weights(model)


@torch.no_grad()
def descend(parameters):
    """A step of SGD, rounded once. That of torch.optim in narrow types rounds by the place of an element in memory."""
    for parameter in parameters:
        parameter.copy_((parameter.double() - 1e-3 * parameter.grad.double()).to(parameter.dtype))


def hooked(dtype=torch.float32, **axes):
    model = DistributedDataParallel(network(dtype), bucket_cap_mb=0.005)
    hook = fpna.ddp_hook(**axes)
    model.register_comm_hook(None, hook)
    return model, hook


PLAIN = [{}, {"accumulate": "working"}, {"ordering": "recursive-doubling"},
         {"ordering": "k-nomial:k=3", "accumulate": "float64"}, {"ordering": "ring", "accumulate": "exact"},
         {"ordering": "direct", "accumulate": "compensated"}, {"ordering": "binomial", "check": True}]  # fmt: skip
WIRES = [{"wire": "fp8"}, {"wire": "sign:feedback=on"}, {"wire": "table:n=4", "accumulate": "exact"},
         {"wire": "int8:scale=match"}]  # fmt: skip


@section
def weights_are_those_of_the_hook():
    for axes in PLAIN + (WIRES if SIZE > 1 else []):
        model = sharded()
        fpna.fsdp_reduce_scatter(model, **axes)
        found, expected = trained(model), trained(hooked(**axes)[0])
        yield from (f"{axes}: other bits of {name}" for name in expected if found[name] != expected[name])


@section
def means_are_formed_before_they_are_rounded():
    for number, dtype in ((40000.0, torch.float16), (2.0**-24, torch.float16), (3e38, torch.float32)):
        model = nn.Linear(1, 5, bias=False, dtype=dtype)
        fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))
        fpna.fsdp_reduce_scatter(model)
        model(torch.full((1, 1), number, dtype=dtype)).sum().backward()
        seen = model.weight.grad.full_tensor()
        if (seen != torch.tensor(number, dtype=dtype)).any():
            yield f"{SIZE} x {number} in {dtype} has the mean {seen[0].item()}"
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        model = sharded(dtype)
        fpna.fsdp_reduce_scatter(model)
        found, expected = trained(model), trained(hooked(dtype)[0])
        yield from (f"{dtype}: other bits of {name}" for name in expected if found[name] != expected[name])
    model = sharded(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fpna.fsdp_reduce_scatter(model)
    if trained(model) != trained_alone_in_bfloat16():
        yield "the mean of gradients in bfloat16 was not formed in float32"


def trained_alone_in_bfloat16():
    """Weights in float32, gradients in bfloat16, their exact mean in float32."""
    model = network()
    for step in range(4):
        narrow = copy.deepcopy(model).to(torch.bfloat16)
        x = torch.randn(8, 37, generator=torch.Generator().manual_seed(100 * step + RANK)).to(torch.bfloat16)
        (narrow(x).square().sum() * 3.0**RANK).backward()
        for own, given in zip(model.parameters(), narrow.parameters(), strict=True):
            total = torch.stack(COMM.allgather(given.grad.double())).sum(0)  # exact, of so few bits
            own.grad = total.float() / SIZE
        descend(model.parameters())
    return weights(model)


@section
def infinities_and_nan_reach_every_rank():
    for axes in [*PLAIN, *WIRES]:
        for bad in ("inf", "nan"):
            model = sharded()
            fpna.fsdp_reduce_scatter(model, **axes)
            x = torch.full((2, 37), float(bad) if RANK == SIZE - 1 else 1.0)
            model(x).sum().backward()
            gradient = model[0].weight.grad.full_tensor()
            if torch.isfinite(gradient).all():
                yield f"{axes}: {bad} of one rank was lost"


@section
def saved_errors_give_the_bits_of_the_uninterrupted_training():
    axes = {"wire": "sign:feedback=on"}
    for make in (with_hook, with_scatter) if SIZE > 1 else (with_hook,):
        model, save, _ = make(axes)
        trained(model, 3)
        state, kept = save(), copy.deepcopy(model.state_dict())
        expected = trained(model, 3, 3)
        if not state or not any(errors["own"].any() for errors in state.values()):
            yield f"{make.__name__}: nothing was saved"
        for given, same in ((state, True), ({}, False)):
            again, _, load = make(axes)
            again.load_state_dict(kept)
            load(given)
            if (trained(again, 3, 3) == expected) != same:
                yield f"{make.__name__}: the bits are {'others' if same else 'the same without the errors'}"
        wrong = {**state, "7.weight": state["0.weight"]} if RANK == 0 else state
        if "rank 0: the state has errors of 7.weight" not in raised(
            ValueError, lambda load=load, w=wrong: load(w)
        ):
            yield f"{make.__name__}: a wrong state was taken"


def with_hook(axes):
    model, hook = hooked(**axes)
    return model, lambda: hook.state_dict(model), lambda state: hook.load_state_dict(model, state)


def with_scatter(axes):
    model = sharded()
    scattered = fpna.fsdp_reduce_scatter(model, **axes)
    return model, scattered.state_dict, scattered.load_state_dict


@section
def what_cannot_be_is_told_on_all_ranks():
    def factor(model):
        model.set_gradient_divide_factor(2.0)
        return model

    def one_alone():
        model = sharded()
        return factor(model) if RANK == 0 else model

    cases = [
        (network, {}, "no module of the model is sharded"),
        (lambda: sharded(dimension=1), {"wire": "fp8"}, "sharded along their first dimension"),
        (lambda: sharded(torch.float64), {"wire": "fp8"}, "are float64"),
        (lambda: sharded(reduce_dtype=torch.float64), {"wire": "fp8"}, "reduces in float64"),
        (one_alone, {}, "the gradient divide factor is 2.0"),
        (sharded, {"ordering": "block-tree"}, "adds over blocks"),
    ]
    if SIZE > 1:
        mesh = init_device_mesh("cpu", (1, SIZE), mesh_dim_names=("replicate", "shard"))
        cases.append((lambda: sharded(mesh=mesh), {}, "the model is also replicated"))
        cases.append((sharded, {"wire": "fp8"} if RANK else {}, "processes pass different arguments"))
    for make, axes, expected in cases:
        model = make()
        call = functools.partial(fpna.fsdp_reduce_scatter, model, **axes)
        message = raised((TypeError, ValueError), call)
        if expected not in message:
            yield f"{expected!r} is not in {message!r}"
    model = sharded()
    fpna.fsdp_reduce_scatter(model)
    if SIZE > 1 and "the gradient divide factor is 2.0" not in raised(
        ValueError, lambda: trained(factor_all(model))
    ):
        yield "another factor was taken"


def factor_all(model):
    for module in (model, model[2]):
        module.set_gradient_divide_factor(2.0)
    return model


if __name__ == "__main__":
    report_over_gloo()
