"""Sums and dot products on the device: bits, bandwidth, and the fastest launch shape."""

from statistics import median

import numpy as np

from benchmarks.gpu.timing import against, rounds
from kernels import registry
from kernels.sums import cupy as gpu
from kernels.sums import launch

SMALL, LARGE = 4_194_304, 1 << 28  # the published size, and one far larger than any cache
PUBLISHED = (64, 2, 1 << 16)  # block, items, grid of the published study
ATOMICS = 4  # calls in a sample of `ao`, which is hundreds of times slower than others
RUNS = 10  # calls of a variant without a guarantee, to count its different results
FOLLOWING = ["spa", "sptr", "sprg", "tprc", "sp-pairwise", "sp-neumaier"]
ORDER_FREE = ["binned", "fixed-point", "exact"]
SWEPT = ["spa", "sptr", "binned", "exact"]


def sum_rows(asked) -> list[dict]:
    """One row per size, launch shape and variant."""
    small, large = (4096, 8192) if asked.quick else (SMALL, fitting(LARGE))
    default = (launch.BLOCK, launch.ITEMS, launch.GRID)
    rows = _rows("sum", small, default, [*FOLLOWING, *ORDER_FREE, "cu", "ao"], asked)
    rows += _rows("sum", small, PUBLISHED, [*FOLLOWING, "cu"], asked)
    rows += _rows("sum", large, default, [*FOLLOWING, *ORDER_FREE, "cu"], asked)
    return rows + _rows("dot", large // 2, default, ["spa", "sptr", *ORDER_FREE, "cu"], asked)


def shape_rows(asked) -> list[dict]:
    """The fastest launch shape of each variant and size, against the default."""
    import cupy as xp

    rows = []
    for n in (4096, 8192) if asked.quick else (SMALL, fitting(LARGE)):
        x = xp.asarray(np.random.default_rng(1).standard_normal(n))
        for name in SWEPT:
            items = gpu.ORDER_FREE_ITEMS if name in ORDER_FREE else launch.ITEMS
            default = (launch.BLOCK, items, launch.GRID)
            shapes = {
                (block, items, grid)
                for block in ((128, 256) if asked.quick else (128, 256, 512, 1024))
                for items in ((8,) if asked.quick else (4, 8, 16, 32))
                for grid in (1024, 4096, 16384)
            }
            # Options with the same launch shape for this length are timed once.
            distinct = {launch.shape(n, *shape): shape for shape in sorted(shapes)}
            distinct[launch.shape(n, *default)] = default
            calls = {shape: _queued("sum", name, (x,), shape) for shape in distinct.values()}
            times = rounds(calls, asked, most=20)
            best = min(times, key=lambda shape: median(times[shape]))
            rows.append(
                {
                    "what": f"sum {name} {n}",
                    "check": "-",
                    "best block, items, grid": ", ".join(map(str, best)),
                    "ms": 1e3 * median(times[best]),
                    "default to best": against(times, default, best),
                    "raw": {", ".join(map(str, shape)): values for shape, values in times.items()},
                }
            )
    return rows


def _rows(operation: str, n: int, shape, names, asked) -> list[dict]:
    import cupy as xp

    rng = np.random.default_rng(1)
    hosts = [rng.standard_normal(n) for _ in range(1 if operation == "sum" else 2)]
    arrays = [xp.asarray(host) for host in hosts]
    checks = {name: _check(operation, name, hosts, arrays, shape) for name in names}
    target = xp.empty(n)
    calls = {"copy": lambda: xp.copyto(target, arrays[0])}
    calls |= {name: _queued(operation, name, arrays, shape) for name in names if name != "ao"}
    calls |= _torch(operation, arrays)
    times = rounds(calls, asked)
    if "ao" in names:
        times |= rounds({"ao": _queued(operation, "ao", arrays, shape)}, asked, most=ATOMICS)
    copied = 2 * arrays[0].nbytes / median(times["copy"])
    nbytes = sum(x.nbytes for x in arrays)
    rows = []
    for name in times:
        seconds = median(times[name])
        rate = copied if name == "copy" else nbytes / seconds
        rows.append(
            {
                "what": f"{operation} {n}, block {shape[0]}, {name}",
                "check": checks.get(name, "-"),
                "ms": 1e3 * seconds,
                "ms per 100": 1e5 * seconds,
                "GB/s": 1e-9 * rate,
                "of copy": rate / copied,
                "to cu": against(times, name, "cu"),
                "to spa": against(times, name, "spa"),
                "raw": times[name],
            }
        )
    return rows


def _queued(operation: str, name: str, arrays, shape):
    """A call that leaves its result on the device; `tprc` waits for it, since the host adds the result."""
    if name == "tprc":
        total = registry.get(operation, name, "cupy")
        return lambda: total(*arrays, **dict(zip(("block", "items", "grid"), shape, strict=True)))
    if name == "cu":
        return lambda: gpu.cu_queue(operation, arrays)
    if name in ORDER_FREE:
        order_free = (shape[0], max(shape[1], gpu.ORDER_FREE_ITEMS), shape[2])
        return lambda: gpu.queue_order_free(name, operation, arrays, *order_free)
    if name not in ("ao", "spa"):
        return lambda: gpu.queue(name, operation, arrays, *shape)
    import cupy as xp

    out = xp.zeros(1)  # not reset to zero, which would take a separate call
    return lambda: gpu.queue(name, operation, arrays, *shape, out=out)


def _check(operation: str, name: str, hosts, arrays, shape) -> str:
    variant = registry.get(operation, name, "cupy")
    parameters = dict(zip(("block", "items", "grid"), shape, strict=True)) if name != "cu" else {}
    if variant.guarantee == "none" or name == "cu":
        results = {variant(*arrays, **parameters).tobytes() for _ in range(RUNS)}
        return f"{len(results)} results in {RUNS} runs"
    twin = registry.get(operation, name, "native")
    on_cpu = twin(*hosts, **(parameters if "block" in twin.parameters else {}))
    return "same bits" if variant(*arrays, **parameters).tobytes() == on_cpu.tobytes() else "FAIL bits differ"


def _torch(operation: str, arrays) -> dict:
    """torch's own calls, if torch is built for CUDA, on the current stream, so the same events time them."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    tensors = [torch.from_dlpack(x) for x in arrays]
    function = torch.sum if operation == "sum" else torch.dot
    return {"torch": on_current_stream(lambda: function(*tensors))}


def on_current_stream(call):
    """A call of torch on CuPy's current stream."""
    import cupy as xp
    import torch

    def run():
        with torch.cuda.stream(torch.cuda.ExternalStream(xp.cuda.get_current_stream().ptr)):
            call()

    return run


def fitting(n: int) -> int:
    """n, halved until three float64 arrays of this length fit into the device's free memory."""
    import cupy as xp

    free = xp.cuda.runtime.memGetInfo()[0]
    while 3 * 8 * n > free:
        n //= 2
    return n
