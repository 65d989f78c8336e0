"""The process that audits: `python -m kernels.torchops.worker` answers one request per line. A case that crashes or
hangs ends this process, but not its caller.

    {"what": "audit", "case": {"operation": ..., "direction": ..., "factors": {...}}, "seed": 1, "device": "cpu",
     "runs": 12}
    {"what": "audit", "file": "mine.py:function", "direction": "forward", ...}       a user's function
    {"what": "digest", ...}                                                          the first call alone

    ready                                                    the first line
    {"calls": 12, "seconds": 3.1}                            progress, at times: calls so far, and their seconds
    {"outcome": "done", "seconds": 0.2, "audit": {...}}      or "refused" with the "error" of torch or of the function,
                                                             or "nothing" with the reason why no number is compared
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, cast

DONE, REFUSED, NOTHING = "done", "refused", "nothing"
TELL_S = 0.25  # between two lines of progress

Tell = Callable[[dict[str, Any]], None]


def answer(request: dict[str, Any], tell: Tell = lambda line: None) -> dict[str, Any]:
    """Answers a request; errors of torch and of a user's function are answers too. `tell` receives progress."""
    from kernels.torchops.audit import Plan, audit, first_digest
    from kernels.torchops.calls import Nothing
    from kernels.torchops.cases import find  # noqa: F401 - before a user's directory can shadow its imports
    from kernels.torchops.own import importable
    from kernels.torchops.results import taken_apart

    begin = time.perf_counter()
    file = request.get("file")
    try:
        with importable(file.rpartition(":")[0]) if file else contextlib.nullcontext():
            case, direction, name, effects, hint = _case(request)
            arguments = (case, direction, name, request["seed"])
            if request["what"] == "digest":
                record: dict[str, Any] = {"digest": first_digest(*arguments, device=request["device"])}
            else:
                plan = Plan(runs=request["runs"])
                record = audit(*arguments, plan=plan, device=request["device"], ended=_progress(tell))
                _hint(record, hint)
            record["inputs"] = taken_apart(case.tensors, "inputs").digest()
        reply = {"outcome": DONE, "audit": record} | ({"effects": effects} if effects else {})
    except Nothing as nothing:
        reply = {"outcome": NOTHING, "error": str(nothing)}
    except Exception as error:  # any error of a function under audit is a finding
        reply = {"outcome": REFUSED, "error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}
    return reply | {"seconds": time.perf_counter() - begin}


def _progress(tell: Tell) -> Callable[[float], None]:
    """A function to call after every call of the case; it sends progress to `tell` every TELL_S seconds."""
    calls, told, begin = 0, 0.0, time.perf_counter()

    def ended(_: float) -> None:
        nonlocal calls, told
        calls += 1
        if (now := time.perf_counter()) - told >= TELL_S:
            told = now
            tell({"calls": calls, "seconds": now - begin})

    return ended


def _hint(record: dict[str, Any], hint: str) -> None:
    """Adds a hint about arguments that may have samples to changes of the batch that failed or differ much. If no size
    of the batch could be tried, positions are not judged either: parts of a sample may not have moved with it."""
    failed = record["not_tried"]
    if not hint:
        return
    if "batch" in failed and "position" in record:
        del record["position"]
        failed["position"] = "no size of the batch could be tried, so samples may not be independent"
    for change in ("batch", "position"):
        if change in failed:
            failed[change] += f"; {hint}"
        elif change in record:
            record[change]["hint"] = hint


def _case(request: dict[str, Any]):
    """(prepared, direction, name, effects, hint) of the requested case."""
    from kernels.torchops.cases import find
    from kernels.torchops.cases.inputs import Draw
    from kernels.torchops.cases.operation import Case

    seed = request["seed"]
    if "file" in request:
        from kernels.torchops.own import batch_hint, load, looked_at

        name, direction = request["file"], request["direction"]
        own = load(name, seed)
        looked = looked_at(own, direction, request["device"], name, seed)
        return looked[0], direction, name, looked[1], batch_hint(own)
    spec = request["case"]
    factors = {key: tuple(v) if isinstance(v, list) else v for key, v in spec["factors"].items()}
    case = Case(spec["operation"], spec["direction"], factors)
    built = find(case.operation).build(Draw(case.name, seed), **factors)
    return built, case.direction, case.name, None, ""


def main() -> None:
    """Answers requests until standard input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of a function goes to the log, at once, since a function may end the process
    cast(io.TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)
    warnings.simplefilter("ignore")  # torch's own, about the deterministic mode and deprecated types
    import torch

    def tell(line: dict[str, Any]) -> None:
        replies.write(json.dumps(line) + "\n")
        replies.flush()

    torch.set_num_interop_threads(1)
    replies.write("ready\n")  # imports take seconds, which do not count for a request
    replies.flush()
    for line in sys.stdin:
        tell(answer(json.loads(line), tell))


if __name__ == "__main__":
    main()
