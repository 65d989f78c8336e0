"""Which kernel a call is, and how large: calls of one `key` have times that depend on their `dims` alone.

The work of a rank beside its kernels has keys too: exchanges, the optimiser, and the `REST`, all between the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from miniapps.partition.cuts.steps import ATTENTION_STEPS
from miniapps.partition.pricing.events import Array, Event, KernelCall, Moves, Sent, Told
from miniapps.partition.rules.manual import NAMES as MANUAL
from miniapps.untrusted.program import Work

PREFIX = "kernel "
REST = "rest"
ROWS = (
    "_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm",
    "native_layer_norm_backward", "argmax", "argmin", "cumsum", "cumprod", "logcumsumexp", "gather", "scatter", "sort",
    "topk", "gather_at", "scatter_at", "scan_blocks", "scan_before", "scan_after",
)  # operations on rows of the first operand  # fmt: skip
EMBEDDED = ("embedding_dense_backward", "embedding_gradient_at")
ATTENTION = "_scaled_dot_product"
# Operations that move no byte; nor does a `view` of contiguous memory.
VIEWS = ("permute", "expand", "slice", "select", "squeeze", "unsqueeze", "alias", "detach")
REDUCED = ("sum", "amax", "amin", "logsumexp", "prod")
FIRST_STEP = 4  # operands of the first step of attention: it has no result and logarithms of blocks before it
STRUCTURED = (*REDUCED, "permute", "cat")  # their numbers are dims


def work_of(event: KernelCall | Sent) -> Work:
    """The kernel and the size of a call, or of packing and unpacking an exchange; empty dims count as 1."""
    if isinstance(event, Sent):
        nbytes = event.stays + sum(n for _, n in event.to)
        return Work(f"{PREFIX}exchange by 1", (max(nbytes, 1),), 0, nbytes)
    return _kernel(event)


def update_of(elements: Sequence[int]) -> Work:
    """A step of Adam for weights of these numbers of elements."""
    total = sum(elements)
    return Work(f"{PREFIX}Adam by 2", (max(total, 1), max(len(elements), 1)), 0, 16 * total)


def recorded_of(elements: Sequence[int], calls: int) -> tuple[Work, Work, Work]:
    """What a traced run of an application does in a step beside the program: the fingerprints of weights of these
    numbers of elements, the test that their gradients are finite, and the events of `calls` calls."""
    total, count = max(sum(elements), 1), max(len(elements), 1)
    fingerprint = Work(f"{PREFIX}fingerprint by 2", (total, count), 0, 4 * total)
    return (
        fingerprint,
        Work(f"{PREFIX}isfinite by 2", (total, count), 0, 4 * total),
        Work(f"{PREFIX}traced events by 1", (max(calls, 1),), 0, 0),
    )


def counts_of(events: Sequence[Event]) -> tuple[int, int, int, int]:
    """All between the calls of a step: the numbers of calls, views and copies, and the copied bytes."""
    moves = [event for event in events if isinstance(event, Moves)]
    copies = [event for event in moves if event.results]
    copied = sum(array.nbytes for event in copies for array in event.results)
    calls = len(events) - len(moves) - sum(isinstance(event, Told) for event in events)
    return calls, len(moves) - len(copies), len(copies), copied


def rest_of(counts: Sequence[int]) -> Work:
    """The work of `counts_of`, each counted from 1."""
    return Work(REST, tuple(n + 1 for n in counts), 0, counts[-1])


def _kernel(call: KernelCall) -> Work:
    name = call.target if call.target.startswith("conv.") else call.target.split(".")[1]
    given, made = call.operands, call.results
    marks = [array.dtype + ("" if array.contiguous else "'") for array in given]
    parts = [PREFIX + name, "own" if call.own else "torch", *marks]
    flops = 0
    if name in ("mm", "bmm", "mv", "dot", "addmm"):
        a, b = (array.shape for array in given[-2:])
        rows, depth, columns = (a[-2] if len(a) > 1 else 1), a[-1], (b[-1] if len(b) > 1 else 1)
        dims: tuple[int, ...] = (*a[:-2], rows, depth, columns)
        flops = 2 * prod(dims)
    elif name.startswith("conv."):
        dims, flops = _convolution(name, call)
        parts += _window(call.constants[0])
    elif name.startswith(ATTENTION):
        q, k = (given[i].shape for i in ((1, 2) if "backward" in name else (0, 1)))
        dims = (prod(q[:-2]), q[-2], k[-2], q[-1])
        flops = (8 if "backward" in name else 4) * prod(dims)
        parts += ["causal"] * (True in call.constants[0])
    elif call.target in ATTENTION_STEPS:
        (dims, flops), sees = _step_of_attention(call), dict(call.constants[1])
        parts += [place for place in ("inside", "behind") if sees[place]]
        parts += ["first"] * (call.target == ATTENTION_STEPS[0] and len(given) == FIRST_STEP)
    elif name.startswith(("embedding", "index_at")):
        table, at = (made[0], given[1]) if name in EMBEDDED else (given[0], given[1])
        dims = (at.elements, table.shape[-1], table.shape[0])
    elif name in MANUAL:
        dims, flops = (*_elements(given, made), *_talking(call)), call.flops
        parts += [str(each) for each in call.constants[0][:2]]
    elif name in ROWS:
        width = given[0].shape[-1] if given[0].shape else 1
        dims = (given[0].elements // max(width, 1), width)
    elif name in REDUCED:
        results = max(made[0].elements // max(len(call.blocks), 1), 1)
        dims = (results, given[0].elements // results)
        flops = given[0].elements
    else:
        dims = _elements(given, made)
    if name in STRUCTURED:
        numbers = [str(each) for each in call.constants[0] if "%" not in str(each)]
        parts += [*numbers, f"of {len(given[0].shape)} dims"]
    if call.blocks:
        dims = (*dims, len(call.blocks))
        parts.append("blocks")
    parts.append(f"by {len(dims)}")
    moved = name not in VIEWS and (name != "view" or not given[0].contiguous)
    nbytes = sum(array.nbytes for array in (*given, *made)) if moved else 0
    return Work(" ".join(parts), tuple(max(n, 1) for n in dims), flops, nbytes)


def _step_of_attention(call: KernelCall) -> tuple[tuple[int, ...], int]:
    """((samples and heads, queries that see the block, keys, width), operations); the elements of queries if none sees
    it. Masked scores count."""
    backward = call.target == ATTENTION_STEPS[1]
    q, sees = call.operands[backward].shape, dict(call.constants[1])
    begin, end = call.constants[0][-4:-2]
    queries = sees["inside"] + sees["behind"]
    if not queries:
        return (prod(q),), 0
    dims = (prod(q[:-2]), queries, end - begin, q[-1])
    return dims, (8 if backward else 4) * prod(dims)


def _elements(given: tuple[Array, ...], made: tuple[Array, ...]) -> tuple[int, ...]:
    """The different numbers of elements of operands and results, largest first, without single numbers."""
    counts = {array.elements for array in (*given, *made)} - {0, 1}
    return tuple(sorted(counts, reverse=True)[:2]) or (1,)


def _talking(call: KernelCall) -> tuple[int, ...]:
    """Of a manual region whose blocks send messages: the numbers of blocks on all ranks, and on this one."""
    return tuple(n for name, n in call.constants[1] if name in ("blocks", "calls"))


def _convolution(name: str, call: KernelCall) -> tuple[tuple[int, ...], int]:
    """((samples, channels read, channels written, places, window), operations)."""
    x, w = call.operands[0].shape, call.operands[1].shape
    made = call.results[0].shape
    if name == "conv.weight":
        places, window = prod(w[2:]), prod(made[2:])
        dims = (x[0], x[1], w[1], places, window)
    else:
        # A transposed window is applied at the places of its operand.
        places, window = min(prod(made[2:]), prod(x[2:])), prod(w[2:])
        dims = (x[0], x[1], made[1], places, window)
    groups = call.constants[0][4]
    return dims, 2 * prod(dims) // max(groups, 1)


def _window(args: tuple) -> list[str]:
    """Stride, dilation, groups and direction of a convolution."""
    stride, dilation, groups, transposed = args[2:6]
    return [
        f"stride {stride}",
        f"dilation {dilation}",
        f"groups {groups}",
        "transposed" if transposed else "direct",
    ]
