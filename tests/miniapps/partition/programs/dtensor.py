"""Random operations and placements by torch's DTensor, a second opinion: JSON lines of what came of each.

    python dtensor.py RANKS FIRST LAST

The operations are those of `tests.miniapps.partition.cases`, by seed; every operand is replicated or cut along a dim by
chance. In float64, on processes of gloo. The plan of each case is checked against the same unsharded results. A line
has the seed, the operation, the placements, and the outcome: `agrees` with the unsharded result; `differs`, and in
what; `refused`, with torch's reason.
"""

import json
import os
import sys
import tempfile
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing

from tests.miniapps.partition.cases import case
from tests.miniapps.partition.oracle import CLOSE, check, drawn, dtype_of, truth


def placed(rng, dims):
    """Replicated, or cut along one of the first `dims` dims: (placement, its text)."""
    from torch.distributed.tensor import Replicate, Shard

    dim = int(rng.integers(-1, dims))
    return (Replicate(), "R") if dim < 0 else (Shard(dim), f"S{dim}")


def taken(argument, tensors):
    """An argument as torch takes it."""
    if isinstance(argument, tuple):
        return [taken(part, tensors) for part in argument]
    if isinstance(argument, str) and argument.startswith("%"):
        return tensors[argument[1:]]
    if isinstance(argument, str) and argument.startswith("torch."):
        return dtype_of(argument.removeprefix("torch."))
    return argument


def function_of(target):
    """The operation of torch that a node names."""
    _, name, overload = target.split(".")
    return getattr(getattr(torch.ops.aten, "reshape" if name == "view" else name), overload)


def outcome(seed, mesh):
    """What comes of a case, or None for an operation that torch does not have, or that has no operands."""
    from torch.distributed.tensor import distribute_tensor

    graph, plan, ranks = case(seed)
    node = graph.nodes[0]
    operands = list(dict.fromkeys(node.operands()))
    if node.target.startswith("partition.") or not operands:
        return None
    values = drawn(graph, seed)
    true = truth(graph, values)
    if mesh.get_rank() == 0:
        check(plan, graph, values, ranks)
    rng = np.random.default_rng([seed, 1])
    shapes = graph.tensors()
    # Images that are cut in uneven rows end the process: what neighbours send is not what they expect.
    most = 2 if node.target == "aten.convolution.default" else 9
    placements = {name: placed(rng, min(most, len(shapes[name].shape))) for name in operands}
    line = {"seed": seed, "operation": node.target, "placements": [text for _, text in placements.values()]}
    made, reason = (), ""
    try:
        tensors = {
            name: distribute_tensor(torch.from_numpy(np.array(values[name])), mesh, [placement])
            for name, (placement, _) in placements.items()
        }
        kwargs = {key: taken(value, tensors) for key, value in node.kwargs}
        made = function_of(node.target)(*taken(node.args, tensors), **kwargs)
        made = made if isinstance(made, (tuple, list)) else (made,)
    except Exception as error:  # whatever torch raises is its reason
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    reasons = [None] * mesh.size()
    dist.all_gather_object(reasons, reason)
    if any(reasons):
        return line | {"outcome": "refused", "why": next(filter(None, reasons))}
    for tensor in node.results:
        k = int(tensor.name.rpartition(".")[2]) if len(node.results) > 1 or "." in tensor.name else 0
        whole, wanted = made[k].full_tensor().numpy(), true[tensor.name]
        if whole.shape != wanted.shape:
            return line | {"outcome": "differs", "why": f"shape {whole.shape}, not {wanted.shape}"}
        apart = float(np.abs(whole.astype(float) - wanted.astype(float)).max(initial=0.0))
        if not apart <= CLOSE * max(1.0, float(np.abs(wanted.astype(float)).max(initial=0.0))):
            return line | {"outcome": "differs", "why": f"values by {apart:g}"}
    return line | {"outcome": "agrees", "why": ""}


def rows_of_a_convolution(mesh):
    """A 3 x 3 convolution of an image whose rows are cut, by its results: the shape, the placement."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    image, weight = torch.ones(1, 1, 8, 8), torch.ones(1, 1, 3, 3)
    given = distribute_tensor(image, mesh, [Shard(2)]), distribute_tensor(weight, mesh, [Replicate()])
    try:
        made = torch.ops.aten.convolution(*given, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    except Exception as error:
        return {"outcome": "refused", "why": f"{type(error).__name__}: {error}"}
    wanted = torch.ops.aten.convolution(image, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    whole = made.full_tensor()
    same = whole.shape == wanted.shape and bool((whole == wanted).all())
    found = {"shape": list(whole.shape), "wanted": list(wanted.shape), "placements": str(made.placements)}
    return {"outcome": "agrees" if same else "differs", "why": "", **found}


def work(rank, ranks, first, last, store):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (ranks,))
    lines = [{"seed": None, "operation": "rows of a convolution", **rows_of_a_convolution(mesh)}]
    with torch.no_grad():
        lines += filter(None, (outcome(seed, mesh) for seed in range(first, last)))
    if rank == 0:
        for line in lines:
            print(json.dumps(line), flush=True)
    dist.barrier()  # a process that leaves early ends the others
    dist.destroy_process_group()


def main(ranks, first, last):
    with tempfile.TemporaryDirectory() as folder:
        arguments = int(ranks), int(first), int(last), f"{folder}/store"
        torch.multiprocessing.spawn(work, arguments, nprocs=int(ranks))


if __name__ == "__main__":
    main(*sys.argv[1:])
