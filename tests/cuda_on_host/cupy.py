"""A stand-in for CuPy on a machine without a GPU: put this directory on PYTHONPATH, and `import cupy` finds it.

It offers what the program uses of CuPy, with CuPy's strictness: arrays "on the device" do not mix with NumPy's,
and come back only by `get()`; misaligned ones are an error; float32 operations lose subnormal numbers. New memory holds
NaN. `RawModule` builds the CUDA sources with the host's C++ compiler against `threads.hpp`. So the whole device path
runs, and its bits can be compared; its times say nothing.

FPNA_HOST_ORDER is the order in which blocks run, and the threads of a block between two barriers: `ascending` (the
default), `descending`, or a number, which is the seed of random orders. It is read at every launch.
"""

import ctypes
import functools
import hashlib
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

float16, float32, float64, bool_ = np.float16, np.float32, np.float64, np.bool_
int32, int64, uint8, uint16, uint32, uint64 = np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64
dtype, nan, inf, pi = np.dtype, np.nan, np.inf, np.pi
HERE = Path(__file__).parent
BUILT = HERE.parent.parent / "build" / "cuda_on_host"
os.environ.setdefault("CUPY_CACHE_DIR", str(BUILT / "texts"))
SCALARS = (bool, int, float, np.generic)


class ndarray(NDArrayOperatorsMixin):
    """An array on the device."""

    def __init__(self, held, dtype=None, memptr=None, strides=None):
        """`held`: NumPy's, shared by views as device memory is; or a shape, as CuPy has it, with the rest."""
        if memptr is not None:
            interface = {"data": (memptr.ptr, False), "shape": held, "strides": strides, "version": 3}
            interface["typestr"] = np.dtype(dtype).str
            held = np.asarray(SimpleNamespace(__array_interface__=interface, owner=memptr))
        self._held = held

    shape = property(lambda self: self._held.shape)
    dtype = property(lambda self: self._held.dtype)
    ndim = property(lambda self: self._held.ndim)
    size = property(lambda self: self._held.size)
    nbytes = property(lambda self: self._held.nbytes)
    device = property(lambda self: _Device())
    strides = property(lambda self: self._held.strides)
    data = property(lambda self: SimpleNamespace(ptr=self._held.ctypes.data, owner=self._held))

    @property
    def flags(self):
        return SimpleNamespace(c_contiguous=self._held.flags.c_contiguous)

    @property
    def __cuda_array_interface__(self):
        return self._held.__array_interface__

    def get(self, out=None, stream=None):
        if out is None:
            return self._held.copy(order="C")
        if out.shape != self.shape or out.dtype != self.dtype or not self.flags.c_contiguous:
            raise ValueError("get: out must have the array's shape and dtype, both contiguous")
        _when_waited_for(stream, lambda: np.copyto(out, self._held))
        return out

    def set(self, values, stream=None):
        if type(values) is not np.ndarray or values.shape != self.shape or values.dtype != self.dtype:
            raise ValueError("set: a NumPy array of the same shape and dtype is needed")
        _when_waited_for(stream, lambda: np.copyto(self._held, values))

    def tobytes(self):
        return self._held.tobytes()

    def copy(self):
        return ndarray(_held(self).copy(order="C"))

    def astype(self, to):
        return ndarray(_flushed(_flushed(_held(self)).astype(to, order="C")))

    def reshape(self, *shape):
        return ndarray(self._held.reshape(*shape))

    def view(self, to):
        return ndarray(self._held.view(to))

    def all(self, axis=None):
        return ndarray(np.asarray(self._held.all(axis=axis)))

    def max(self):
        return ndarray(np.asarray(self._held.max()))

    def tolist(self):
        return self._held.tolist()

    def __len__(self):
        return len(self._held)

    def __bool__(self):
        return bool(self._held)

    def __float__(self):
        return float(self._held)

    def __int__(self):
        return int(self._held)

    def __getitem__(self, key):
        return ndarray(np.asarray(self._held[key]))

    def __setitem__(self, key, value):
        self._held[key] = _held(value)

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed; use get()")

    def __array_function__(self, function, *_):
        raise TypeError(f"numpy.{function.__name__} was called with an array on the device")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        if method != "__call__":
            raise TypeError(f"{ufunc}.{method} is not offered")
        result = _flushed(np.asarray(ufunc(*[_flushed(_held(x)) for x in inputs], **kwargs)))
        if out is None:
            return ndarray(result)
        _held(out[0])[...] = result
        return out[0]

    def __dlpack__(self, **kwargs):
        return self._held.__dlpack__()

    def __dlpack_device__(self):
        return self._held.__dlpack_device__()


def _held(value):
    if isinstance(value, ndarray):
        if not value._held.flags.aligned:
            raise RuntimeError("cudaErrorMisalignedAddress: misaligned address")
        return value._held
    if isinstance(value, SCALARS):
        return value
    raise TypeError(f"Unsupported type {type(value)}")


def _flushed(array):
    """CuPy compiles its kernels so that subnormal float32 become zero."""
    if getattr(array, "dtype", None) != np.float32:
        return array
    return np.where(np.abs(array) < np.finfo(np.float32).smallest_normal, np.copysign(0, array), array)


def asarray(values, dtype=None):
    if isinstance(values, ndarray):
        return values if dtype is None else values.astype(dtype)
    if hasattr(values, "__cuda_array_interface__"):
        interface = SimpleNamespace(__array_interface__=values.__cuda_array_interface__, owner=values)
        return ndarray(np.asarray(interface))
    return ndarray(np.array(values, dtype, order="C"))


def zeros(shape, dtype=np.float64):
    return ndarray(np.zeros(shape, dtype))


def empty(shape, dtype=np.float64):
    return ndarray(
        np.full(shape, np.nan if np.dtype(dtype).kind == "f" else np.array(-1).astype(dtype), dtype)
    )


def empty_like(array):
    return empty(array.shape, array.dtype)


def ascontiguousarray(array):
    return ndarray(np.ascontiguousarray(_held(array)))


def stack(arrays, axis=0):
    return ndarray(np.stack([_held(array) for array in arrays], axis=axis))


def clip(array, low, high):
    return ndarray(np.clip(_held(array), low, high))


def max(array):
    return array.max()


def sum(array):
    return ndarray(np.asarray(np.sum(_held(array))))


def dot(a, b):
    return ndarray(np.asarray(np.dot(_held(a), _held(b))))


def copyto(to, array):
    _held(to)[...] = _held(array)


def take(array, indices, axis=None, out=None):
    """Only into memory of the right type and shape, as CuPy's; indices out of range are an error here."""
    if out.dtype != array.dtype or out.shape != indices.shape:
        raise ValueError("take: out must have the shape of the indices and the type of the array")
    out._held[...] = np.take(_held(array), _held(indices), axis=axis)
    return out


def argsort(array):
    """Stable, as CuPy's."""
    return ndarray(np.argsort(_held(array), kind="stable"))


def from_dlpack(array):
    """CuPy refuses host memory here; the stand-in's device is host memory."""
    return ndarray(np.from_dlpack(array))


sqrt, isfinite, abs = (
    functools.partial(lambda f, x: ndarray(np.asarray(f(_held(x)))), f)
    for f in (np.sqrt, np.isfinite, np.abs)
)


# Which libraries reductions call: a setting that changes nothing here.
_core = SimpleNamespace(get_routine_accelerators=lambda: [], set_routine_accelerators=lambda names: None)


class RawModule:
    """CUDA C++ built for the host. Not from its text, which CuPy would compile without subnormal float32."""

    def __init__(self, path):
        self._library = _build(Path(path).read_text())

    def get_function(self, name):
        entry = getattr(self._library, f"launch_{name}")

        def launch(grid, block, arguments, shared_mem=0):
            if len(grid) != 1 or len(block) != 1 or min(*grid, *block) < 1:
                raise ValueError(f"invalid configuration: grid {grid}, block {block}")
            values = [_as_argument(value) for value in arguments]
            addresses = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
            self._library.set_order(*_order())
            entry(ctypes.c_uint(*grid), ctypes.c_uint(*block), ctypes.c_uint(shared_mem), addresses)

        return launch


def _compile_using_nvrtc(source, options, filename):
    """The text itself: `RawModule` builds it."""
    if not {"--fmad=false", "--ftz=false"} <= {*options}:
        raise ValueError("a*b + c would be contracted into one rounding, or subnormal numbers lost")
    return source, None


def _order():
    """(kind, seed) as threads.hpp takes them."""
    order = os.environ.get("FPNA_HOST_ORDER", "ascending")
    kinds = {"ascending": 0, "descending": 1}
    return (kinds[order], 0) if order in kinds else (2, int(order))


def _as_argument(value):
    if isinstance(value, ndarray):
        return ctypes.c_void_p(_held(value).ctypes.data)
    if isinstance(value, float):
        return ctypes.c_double(value)
    if isinstance(value, int) and not isinstance(value, bool):  # CuPy gives a bool one byte
        return ctypes.c_longlong(value)
    raise TypeError(f"a kernel cannot be given a {type(value)}")


def _build(code):
    names = re.findall(
        r'^extern "C" __global__ void (?:__launch_bounds__\(.*?\)\s+)?(\w+)\(', code, re.MULTILINE
    )
    source = '#include "threads.hpp"\n' + code + "".join(f"\nHOST_KERNEL({name})" for name in names) + "\n"
    compiler = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
    parts = (" ".join(compiler), (HERE / "threads.hpp").read_text(), source)
    library = BUILT / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}.so"
    if not library.exists():  # kept, as CuPy keeps what it compiles
        BUILT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT) as directory:
            path, built = Path(directory, "kernels.cpp"), Path(directory, "kernels.so")
            path.write_text(source)
            subprocess.run([*compiler, f"-I{HERE}", "-o", built, path], check=True)
            built.replace(library)
    return ctypes.CDLL(str(library))


class _Device:
    id = 0
    ptr = 0  # of its only stream
    compute_capability = "90"

    def __init__(self, number=0):
        if number != 0:
            raise ValueError("the stand-in has one device")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """There is no other to go back to."""

    def use(self):
        """It is the current one already."""

    def synchronize(self):
        """Every call returns when its work is done, but for copies that were given a stream."""
        while copies_to_come:
            copies_to_come.pop(0)()


copies_to_come = []


def _when_waited_for(stream, copy):
    """Copies on a stream that is named are made as late as can be."""
    if stream is None:
        copy()
    else:
        copies_to_come.append(copy)


class _Stream(_Device):
    def __init__(self, non_blocking=False):
        """Every stream is the same."""


class _Event:
    def record(self, stream=None):
        self.at = time.perf_counter()

    def synchronize(self):
        """It has come already."""


cuda = SimpleNamespace(
    Device=_Device,
    Stream=_Stream,
    Event=_Event,
    get_elapsed_time=lambda begin, end: 1e3 * (end.at - begin.at),
    alloc_pinned_memory=lambda nbytes: bytearray(nbytes),
    get_current_stream=_Device,
    compiler=SimpleNamespace(compile_using_nvrtc=_compile_using_nvrtc),
    nvrtc=SimpleNamespace(getVersion=lambda: (0, 0)),
    runtime=SimpleNamespace(
        is_hip=False,
        getDeviceCount=lambda: 1,
        driverGetVersion=lambda: 0,
        runtimeGetVersion=lambda: 0,
        memGetInfo=lambda: (1 << 30, 1 << 30),
        getDeviceProperties=lambda number: {"name": b"host stand-in", "uuid": bytes(16)},
    ),
)
