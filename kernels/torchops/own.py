"""A user's function under audit: `FILE.py:FUNCTION`, and what it does beside returning a result.

The file has, beside the function, `inputs(seed)`, which returns the tuple of NumPy arrays or CPU tensors that the
function is called with, and may have `batch`, a tuple of the numbers of those whose first axis counts independent
samples. The file is run, as Python runs any; nothing of it is believed.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from kernels.guarantees import ChoiceError
from kernels.torchops.calls import Calls
from kernels.torchops.cases.operations import Prepared, prepared
from kernels.torchops.source import lacks, require, split_function

WRITES = ("w", "a", "x", "+")
EVENTS = {
    "socket.connect": "connects to a network address",
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.remove": "removes a file",
    "os.rename": "renames a file",
    "os.mkdir": "makes a directory",
    "os.putenv": "sets an environment variable",
}


def load(name: str, seed: int) -> Prepared:
    """The case that FILE.py:FUNCTION is. Raises ChoiceError, which says what the file must have; the errors of the
    file itself pass through."""
    require(name)
    path, function = split_function(name)
    spec = importlib.util.spec_from_file_location("fpna_audited", path)
    assert spec is not None and spec.loader is not None  # a path that ends in .py has both
    module = importlib.util.module_from_spec(spec)
    sys.modules["fpna_audited"] = module
    spec.loader.exec_module(module)
    for needed in (function, "inputs"):
        if not callable(getattr(module, needed, None)):
            raise ChoiceError(lacks(path, needed, function))
    given = module.inputs(seed)
    given = given if isinstance(given, tuple | list) else (given,)
    arrays = [_array(path, number, x) for number, x in enumerate(given)]
    smooth = [n for n, x in enumerate(arrays) if x.dtype.kind == "f"]
    batch = getattr(module, "batch", ())
    if not all(isinstance(n, int) and 0 <= n < len(arrays) and arrays[n].ndim for n in batch):
        raise ChoiceError(f"{path}: batch = {batch!r} must be numbers of arrays of inputs(seed), from 0")
    if len({len(arrays[n]) for n in batch}) > 1:
        raise ChoiceError(f"{path}: the arrays {batch!r} of the batch have different numbers of samples")
    return prepared(getattr(module, function), *arrays, differentiate=smooth, batch=batch)


def _array(path: str, number: int, given: Any) -> np.ndarray:
    if isinstance(given, torch.Tensor):
        given = given.detach().cpu().numpy()
    array = np.asarray(given)
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise ChoiceError(
            f"{path}: inputs(seed)[{number}] is of type {array.dtype}: arrays of numbers of at most 64 bits are needed"
        )
    return array


def looked_at(
    case: Prepared, direction: str, device: str, name: str, seed: int
) -> tuple[Prepared, dict[str, Any]]:
    """The case as it is to be audited, and what one call does beside its result.

    `writes`: numbers of the arguments that it changes; `random`: the generators that it advances, which are then put
    back before every call of the audit, so that what is left is the order of additions; `effects`: what else Python
    saw; `settings`: what it left changed in torch.
    """
    calls = Calls(case, direction, device, name, seed)
    effects: dict[str, None] = {}
    _put_back(_seeded(seed))  # Python and NumPy begin every process with numbers of their own
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
    """States of the global generators that are the same in every process."""
    torch_state = torch.Generator().manual_seed(seed).get_state()
    return torch_state, np.random.RandomState(seed % 2**32).get_state(), random.Random(seed).getstate()


def _generators() -> tuple[Any, Any, Any]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _put_back(kept: tuple[Any, Any, Any]) -> None:
    torch.set_rng_state(kept[0])
    np.random.set_state(kept[1])
    random.setstate(kept[2])


def _states() -> dict[str, Any]:
    """The global generators, each as something that compares."""
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
    """Note in `effects` what Python's audit events tell of the calls within."""
    global _hooked
    if not _hooked:  # a hook stays for ever, so that there is one
        sys.addaudithook(lambda event, arguments: [watch(event, arguments) for watch in _watchers] and None)
        _hooked = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[1], str) and any(c in arguments[1] for c in WRITES):
            effects[f"opens {arguments[0]!s:.200} to write"] = None
        elif event in EVENTS:
            effects[EVENTS[event]] = None

    _watchers.append(watch)
    try:
        yield
    finally:
        _watchers.remove(watch)
