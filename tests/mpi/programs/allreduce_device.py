"""All-reduce of arrays in GPU memory: the bits of the host, memory, mistakes. With CuPy or the stand-in for it.

Run by tests/mpi/test_allreduce_device_mpi.py as `mpirun -n P python allreduce_device.py`.
"""

import os
import sys

import ml_dtypes
import numpy as np
from sections import COMM, raised, report, section

from kernels.allreduce import CallMismatch, orderings, plan
from kernels.allreduce.accumulate import ACCUMULATIONS
from kernels.allreduce.execution import library
from kernels.allreduce.schedule import evenly

RANK, SIZE = COMM.rank, COMM.size


def host_arrays_alone():
    """What is wrong with calls on the host before CuPy was imported, as it was where this ran on these ranks before."""
    imported = "cupy" in sys.modules
    with plan(COMM, "direct", (2,)) as reducer:
        reducer(np.ones((1, 2)), out=np.empty(2))
        reducer([[1.0, 1.0]])
        reducer._admit = None  # looks at arrays that are not NumPy's, of the right type and shape
        if reducer(np.ones((1, 2))).tolist() != [SIZE, SIZE]:
            yield "wrong total"
    if "cupy" in sys.modules and not imported:
        yield "cupy was imported for arrays on the host"


ON_THE_HOST = list(host_arrays_alone())
import cupy  # noqa: E402

STAND_IN = hasattr(cupy, "copies_to_come")
ON_BLOCKS = {o.name: {"blocks": [RANK, SIZE + RANK]} for o in orderings() if "owners" in o.needs}
CHOICES = [{"ordering": o.name} for o in orderings()]
CHOICES += [{"ordering": "direct", "accumulation": "exact"}]
# One of each way through the executor: copied, from the caller's memory, and in segments.
LENGTHS = (3, 5_000, 300_000)


def numbers(seed, shape, dtype=np.float64):
    rng = np.random.default_rng([seed, RANK])
    if np.dtype(dtype) == np.int64:
        return rng.integers(-9, 9, shape)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape)).astype(dtype)


def for_library(x):
    """Numbers whose sums are exact where the library adds in GPU memory: it need not do it as in the host's."""
    return np.rint(x) if library.gpu_aware() else x


def differs(device, host):
    """What tells the two apart, or None: kind of memory, type, shape, bits. The host's may be no total at all."""
    if host is None or device is None:
        return None if device is host else f"{device} instead of {host}"
    if type(device) is not cupy.ndarray:
        return f"a {type(device)} came back"
    if (device.dtype, device.shape) != (host.dtype, host.shape):
        return f"{device.dtype} {device.shape} instead of {host.dtype} {host.shape}"
    return None if device.get().tobytes() == host.tobytes() else "other bits"


def both(x, **arguments):
    """The totals of `x` (k, *shape) on the device and on the host, by reducers of their own."""
    on_host = np.empty(
        (SIZE, *x.shape[1:]) if arguments.get("collective") == "allgather" else x.shape[1:], x.dtype
    )
    with plan(COMM, shape=x.shape[1:], dtype=x.dtype, check=True, **arguments) as reducer:
        device = reducer(cupy.asarray(x))
        log = COMM.bcast(reducer.drain_orders())
    if arguments["ordering"] == "arrival":
        arguments["replay"] = log
    with plan(COMM, shape=x.shape[1:], dtype=x.dtype, **arguments) as reducer:
        return device, reducer(x, out=on_host)


@section
def calls_on_the_host_pay_nothing():
    yield from ON_THE_HOST


@section
def every_ordering_has_the_bits_of_the_host():
    for chosen in CHOICES:
        name = chosen["ordering"]
        for n in LENGTHS[:2] if chosen.get("accumulation") == "exact" else LENGTHS:
            x = for_library(numbers(n, (2, n))) if name == "library" else numbers(n, (2, n))
            difference = differs(*both(x, **chosen, **ON_BLOCKS.get(name, {})))
            if difference:
                yield f"{chosen} {n}: {difference}"


@section
def every_type_accumulation_and_collective_has_the_bits_of_the_host():
    types = ["float32", "float16", "int64"] + ([ml_dtypes.bfloat16] if STAND_IN else [])
    cases = [(dtype, {"ordering": "direct"}) for dtype in types]
    cases += [("float32", {"ordering": "library"})]
    cases += [("float32", {"ordering": "direct", "accumulation": "exact"})]
    cases += [("float64", {"ordering": "ring", "accumulation": name}) for name in ACCUMULATIONS]
    cases += [("float64", {"ordering": "ring", "operation": name}) for name in ("prod", "min", "max")]
    for collective in ("reduce", "reduce-scatter", "allgather"):
        cases.append(("float64", {"ordering": "ring", "collective": collective, "root": SIZE - 1}))
    for dtype, arguments in cases:
        for shape in ((7,), (), (0,), (3, 1000)):
            x = numbers(5, (1, *shape), dtype)
            x = for_library(x) if arguments["ordering"] == "library" else x
            difference = differs(*both(x, **arguments))
            if difference:
                yield f"{dtype} {shape} {arguments}: {difference}"


@section
def the_number_of_contributions_may_change():
    with plan(COMM, "direct", (50,)) as reducer:
        for k in (1, 3, 0, 2):
            x = numbers(k, (k, 50))
            difference = differs(reducer(cupy.asarray(x)), reducer(x))
            if difference:
                yield f"k = {k}: {difference}"


@section
def totals_belong_to_the_reducer_or_fill_out():
    for n in LENGTHS:
        with plan(COMM, "direct", (n,)) as reducer:
            xs = [numbers(seed, (1, n)) for seed in range(2)]
            expected = [reducer(x).copy() for x in xs]
            devices, out = [cupy.asarray(x) for x in xs], cupy.empty(n)
            first = reducer(devices[0], out=out)
            second = reducer(devices[1])
            if first is not out or differs(out, expected[0]) or differs(second, expected[1]):
                yield f"{n}: out is wrong, or did not outlive the next call"
            if reducer(devices[0]) is not second:
                yield f"{n}: a call took new memory for its total"
            if reducer(devices[0], out=devices[0][0]) is None or differs(devices[0][0], expected[0]):
                yield f"{n}: in place: other bits"
            if reducer(xs[1]).tobytes() != expected[1].tobytes():
                yield f"{n}: other bits on the host after the device"


@section
def a_part_lies_at_its_place_of_out():
    with plan(COMM, "ring", (2, 11), collective="reduce-scatter") as reducer:
        x = numbers(1, (1, 2, 11))
        expected, out = reducer(x).copy(), cupy.zeros((2, 11))
        part = reducer(cupy.asarray(x), out=out)
        whole = np.zeros(22)
        whole[slice(*evenly(22, SIZE, RANK))] = expected
        if differs(part, expected) or differs(out, whole.reshape(2, 11)):
            yield "the part is wrong, or elsewhere, or more than it was written"


@section
def arrays_that_are_not_contiguous_or_of_another_library():
    class Foreign:
        def __init__(self, array):
            self.held, self.__cuda_array_interface__ = array, array.__cuda_array_interface__

    with plan(COMM, "direct", (40,)) as reducer:
        x = numbers(2, (2, 80))
        expected = reducer(x[:, ::2]).copy()
        difference = differs(reducer(cupy.asarray(x)[:, ::2]), expected)
        if difference:
            yield f"strided: {difference}"
        out = Foreign(cupy.empty(40))
        if reducer(Foreign(cupy.asarray(x[:, ::2].copy())), out=out) is not out or differs(
            out.held, expected
        ):
            yield "out of another library: not filled"


@section
def a_reduction_may_be_under_way():
    for chosen in CHOICES:
        name = chosen["ordering"]
        for n in LENGTHS[:2]:
            x = for_library(numbers(n, (2, n))) if name == "library" else numbers(n, (2, n))
            with plan(COMM, shape=(n,), **chosen, **ON_BLOCKS.get(name, {})) as reducer:
                reducer.start(cupy.asarray(x))
                reducer.progress()
                device = reducer.finish()
                log = COMM.bcast(reducer.drain_orders())
            replay = {"replay": log} if name == "arrival" else {}
            with plan(COMM, shape=(n,), **chosen, **ON_BLOCKS.get(name, {}), **replay) as reducer:
                reducer.start(x)
                difference = differs(device, reducer.finish())
                if difference:
                    yield f"{name} {n}: {difference}"
                if name != "arrival":
                    out = cupy.empty(n)
                    reducer.start(cupy.asarray(x), out)
                    if reducer.finish() is not out or out.get().tobytes() != device.get().tobytes():
                        yield f"{name} {n}: other bits in out"


@section
def a_library_that_takes_gpu_memory_gets_it():
    """Of the stand-in it does; a copy to the host would be seen."""
    if not STAND_IN or SIZE == 1:
        return
    library.gpu_aware, known = (lambda: "it says so"), library.gpu_aware
    get, cupy.ndarray.get = cupy.ndarray.get, None
    totals = []
    try:
        for dtype, operation in (("float64", "sum"), ("float32", "max"), ("int64", "prod")):
            for k, n in ((0, 3), (1, 3), (2, 40_000)):
                x, out = numbers(k, (k, n), dtype), cupy.empty(n, dtype)
                with plan(COMM, "library", (n,), dtype, check=k == 1, operation=operation) as reducer:
                    device = cupy.asarray(x)
                    totals.append((x, operation, reducer(device)))
                    if reducer(device, out=out) is not out:
                        yield f"{dtype} {k}: out is not returned"
                    totals.append((x, operation, out))
                    reducer.start(device)
                    while not reducer.progress():
                        os.sched_yield()
                    totals.append((x, operation, reducer.finish()))
                    if k == 1:
                        totals.append((x, operation, reducer(device, out=device[0])))
        with plan(COMM, "library") as reducer:
            totals.append((np.ones(3), "sum", reducer(cupy.asarray(np.ones(3)))))
    finally:
        library.gpu_aware, cupy.ndarray.get = known, get
    for x, operation, total in totals:
        with plan(COMM, "library", x.shape[1:], x.dtype, operation=operation) as reducer:
            difference = differs(total, reducer(x, out=np.empty(x.shape[1:], x.dtype)))
            if difference:
                yield f"{x.dtype} {x.shape} {operation}: {difference}"


@section
def mistakes_are_named():
    x, out = cupy.asarray(np.ones((1, 2))), cupy.empty(2)
    cases = [
        (TypeError, "type float64, got float32", (x.astype(np.float32), None)),
        (ValueError, "shape (k, 2), k >= 0, got (1, 3)", (cupy.asarray(np.ones((1, 3))), None)),
        (
            ValueError,
            "contributions are in GPU memory and out is float64 (2,) in host memory",
            (x, np.ones(2)),
        ),
        (
            ValueError,
            "out is list: expected a C-contiguous float64 array (2,) in GPU memory",
            (x, [0.0, 0.0]),
        ),
        (ValueError, "out is float64 (3,) in GPU memory", (x, cupy.empty(3))),
        (ValueError, "out is float32 (2,) in GPU memory", (x, out.astype(np.float32))),
        (ValueError, "not contiguous", (x, cupy.empty(4)[::2])),
        (ValueError, "ndarray in GPU memory: expected a writable", (np.ones((1, 2)), out)),
    ]
    for check in (False, True):
        with plan(COMM, "direct", (2,), check=check, name="energy") as reducer:
            for error, part, arguments in cases:
                for call in (reducer, reducer.start):
                    message = raised(error, lambda: call(*arguments))  # noqa: B023
                    if part not in message or "'energy'" not in message:
                        yield f"{part!r}: {message or 'nothing was raised'}"
            if reducer(x).tolist() != [SIZE, SIZE]:
                yield "the reducer does not go on after a mistake"
            if check and SIZE > 1:
                message = raised(CallMismatch, lambda: reducer(x if RANK else np.ones((1, 2))))
                if "in GPU memory" not in message or "rank 0: " not in message:
                    yield f"one rank's array on the host: {message or 'nothing was raised'}"


@section
def the_stand_in_copies_late():
    """Else what is above would show no copy that nobody waits for."""
    if STAND_IN:
        source, into, stream = cupy.asarray(np.ones(3)), np.zeros(3), cupy.cuda.get_current_stream()
        source.get(stream=stream, out=into)
        if into.any() or stream.synchronize() or not into.all() or cupy.copies_to_come:
            yield "a copy was made before it was waited for, or not then"


if __name__ == "__main__":
    report()
