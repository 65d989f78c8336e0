"""A user's function under audit, `FILE.py:FUNCTION`, and its side effects.

Besides the function, the file has `inputs(seed)`, which returns the tuple of the function's arguments. It may have
`batch`, a tuple with the numbers of the arguments whose first axis counts independent samples. Arguments are tensors or
arrays of NumPy, of any type, strides and offset, numbers, and lists, tuples and dicts of these. The file runs as any
Python file; all its values are checked.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from kernels.guarantees import ChoiceError
from kernels.torchops.calls import Calls
from kernels.torchops.cases.operation import Prepared, prepared
from kernels.torchops.given import as_tensors
from kernels.torchops.results import walk
from kernels.torchops.source import lacks, require, split_function

WRITES = ("w", "a", "x", "+")
STARTS_THREADS = "starts threads of its own"
FOREIGN = frozenset(threading.enumerate())  # threads that existed before any user's function ran
EVENTS = {
    "socket.connect": "connects to a network address",
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.fork": "starts a process",
    "os.posix_spawn": "starts a process",
    "_thread.start_new_thread": STARTS_THREADS,
    "os.remove": "removes a file",
    "os.rename": "renames a file",
    "os.mkdir": "makes a directory",
    "os.putenv": "sets an environment variable",
}
# Compilers use files, processes and threads; these are not effects of the function that they compile.
COMPILERS = (
    "torch._inductor",
    "torch._dynamo",
    "torch.utils.cpp_extension",
    "triton",
    "numba",
    "cupy",
    "jax",
    "jaxlib",
)
BYTECODE = "importlib._bootstrap_external"  # writes the bytecode of modules
STANDARD = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<frozen ")
INSTALLED = ("site-packages", "dist-packages")


@contextmanager
def importable(path: str) -> Iterator[None]:
    """A context in which the file `path` can import modules beside it, as a script can; removes them at the end."""
    home = str(Path(path).resolve().parent)
    before, known_modules = list(sys.path), set(sys.modules)
    sys.path.insert(0, home)
    try:
        yield
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known_modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().is_relative_to(home) and "site-packages" not in file:
                del sys.modules[name]


def load(name: str, seed: int) -> Prepared:
    """The case of FILE.py:FUNCTION. Raises ChoiceError, which says what the file must have; errors of the file itself
    pass through. A `batch` that cannot be tried is among the `failures` of the case."""
    require(name)
    path, function = split_function(name)
    spec = importlib.util.spec_from_file_location("fpna_audited", path)
    assert spec is not None and spec.loader is not None  # a path that ends in .py has both
    module = importlib.util.module_from_spec(spec)
    sys.modules["fpna_audited"] = module
    _put_back(_seeded(seed))  # Python and NumPy seed every process differently
    spec.loader.exec_module(module)
    for needed in (function, "inputs"):
        if not callable(getattr(module, needed, None)):
            raise ChoiceError(lacks(path, needed, function))
    given = module.inputs(seed)
    arguments = tuple(given) if type(given) in (tuple, list) else (given,)
    for number, argument in enumerate(arguments):
        try:
            as_tensors(argument)
        except TypeError as error:
            raise ChoiceError(
                f"{path}: inputs(seed)[{number}]: {error}; give arrays of numbers that torch has, or tensors"
            ) from error
    flagged = [n for n, x in enumerate(arguments) if any(each.requires_grad for each in _tensors(x))]
    smooth = flagged or list(range(len(arguments)))
    batch, why = _batch(getattr(module, "batch", ()), arguments)
    failures = {change: f"{path}: {why}" for change in ("batch", "position")} if why else {}
    case = prepared(getattr(module, function), *arguments, differentiate=smooth, batch=batch)
    return replace(case, failures=failures)


def _tensors(given: Any) -> list[torch.Tensor]:
    return [leaf for _, leaf in walk(given, "") if isinstance(leaf, torch.Tensor)]


def _batch(given: Any, arguments: tuple[Any, ...]) -> tuple[tuple[int, ...], str]:
    """(numbers of the arguments with samples, ""), or ((), the reason why `batch` cannot be used)."""
    batch = (given,) if isinstance(given, int) and not isinstance(given, bool) else given
    if batch is None or (isinstance(batch, tuple | list) and not batch):
        return (), ""
    if not isinstance(batch, tuple | list) or not all(
        isinstance(n, int) and 0 <= n < len(arguments) for n in batch
    ):
        return (), f"batch = {given!r} must be numbers of arguments, 0 to {len(arguments) - 1}"
    for n in batch:
        if not (isinstance(arguments[n], np.ndarray | torch.Tensor) and arguments[n].ndim):
            return (), f"batch = {given!r}: argument {n} has no first axis, as samples need"
    counts = {n: len(arguments[n]) for n in batch}
    if len(set(counts.values())) > 1:
        numbers = ", ".join(f"argument {n} has {count}" for n, count in counts.items())
        return (), f"batch = {given!r}: the numbers of samples differ: {numbers}"
    if min(counts.values()) < 2:
        return (), f"batch = {given!r}: there is one sample at most; give inputs with several"
    return tuple(batch), ""


def batch_hint(case: Prepared) -> str:
    """A hint such as `batch = (0, 1)?`, if arguments outside the batch have as many rows as those in it; else empty."""
    if not case.batch:
        return ""
    count = len(case.tensors[case.batch[0]])
    more = [
        n
        for n, x in enumerate(case.tensors)
        if n not in case.batch and isinstance(x, np.ndarray | torch.Tensor) and x.ndim and len(x) == count
    ]
    if not more:
        return ""
    both = tuple(sorted({*case.batch, *more}))
    others = " and ".join(f"argument {n}" for n in more)
    return f"{others} {'has' if len(more) == 1 else 'have'} {count} rows, too: batch = {both}?"


def looked_at(
    case: Prepared, direction: str, device: str, name: str, seed: int
) -> tuple[Prepared, dict[str, Any]]:
    """The case to audit, and the side effects of one call.

    `writes`: numbers of the arguments that it changes. `random`: the generators that it advances; the audit restores
    them before every call, so random numbers cause no differences. `effects`: other effects that Python's audit events
    show. `settings`: settings of torch that it leaves changed.
    """
    calls = Calls(case, direction, device, name, seed)
    effects: dict[str, None] = {}
    _put_back(_seeded(seed))
    before, settings = _states(), _settings()
    with _watching(effects):
        writes = calls.changed_inputs()
    drawn = [generator for generator, state in _states().items() if state != before[generator]]
    left = [key for key, value in _settings().items() if value != settings[key]]
    if not drawn:
        return case, {"writes": writes, "random": [], "effects": list(effects), "settings": left}
    kept = _generators()

    def call(*tensors: Any) -> Any:
        _put_back(kept)
        return case.call(*tensors)

    _put_back(kept)
    return replace(case, call=call), {
        "writes": writes,
        "random": drawn,
        "effects": list(effects),
        "settings": left,
    }


def _seeded(seed: int) -> tuple[Any, Any, Any]:
    """States of the global generators, the same in every process."""
    torch_state = torch.Generator().manual_seed(seed).get_state()
    return torch_state, np.random.RandomState(seed % 2**32).get_state(), random.Random(seed).getstate()


def _generators() -> tuple[Any, Any, Any]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _put_back(kept: tuple[Any, Any, Any]) -> None:
    torch.set_rng_state(kept[0])
    np.random.set_state(kept[1])
    random.setstate(kept[2])


def _states() -> dict[str, Any]:
    """The states of the global generators, as comparable values."""
    numpy_state: Any = np.random.get_state()
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (numpy_state[1].tobytes(), numpy_state[2:]),
        "random": random.getstate(),
    }


def _settings() -> dict[str, Any]:
    return {
        "number of threads": torch.get_num_threads(),
        "deterministic mode": torch.are_deterministic_algorithms_enabled(),
        "default type": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
    }


_watchers: list[Callable[[str, tuple[Any, ...]], None]] = []
_hooked = False


@contextmanager
def _watching(effects: dict[str, None]) -> Iterator[None]:
    """A context that records in `effects` what Python's audit events show."""
    global _hooked
    if not _hooked:  # a hook cannot be removed, so add it once
        sys.addaudithook(lambda event, arguments: [watch(event, arguments) for watch in _watchers] and None)
        _hooked = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[1], str) and any(c in arguments[1] for c in WRITES):
            what = f"opens {arguments[0]!s:.200} to write"
        elif event in EVENTS:
            what = EVENTS[event]
        else:
            return
        if not _by_compiler():
            effects[what] = None

    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:  # older Pythons have no event for it
        if not _by_compiler():
            effects[STARTS_THREADS] = None
        start(thread)

    before = set(threading.enumerate())
    _watchers.append(watch)
    threading.Thread.start = started  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
        _watchers.remove(watch)
        if before - FOREIGN - {threading.current_thread(), threading.main_thread()}:
            effects[STARTS_THREADS] = None


def _by_compiler() -> bool:
    """Whether a compiler causes the current event, for example a write to its cache: the stack has only installed
    packages between them. A user's function that compiled code calls does not count."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    if frame is not None and frame.f_globals.get("__name__") == BYTECODE:
        return True
    while frame is not None:
        name = f"{frame.f_globals.get('__name__', '')}."
        if name.startswith(tuple(f"{compiler}." for compiler in COMPILERS)):
            return True
        file = frame.f_code.co_filename
        if not (file.startswith(STANDARD) or any(folder in file for folder in INSTALLED)):
            return False
        frame = frame.f_back
    return False
