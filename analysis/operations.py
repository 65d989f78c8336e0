"""Says what audits found out about the operation of a watched module, and what would make its bits repeat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from analysis.certificates import certificates
from analysis.divergence.classes import Operation
from analysis.load.frames import Frames, once
from analysis.verdict import counted
from kernels.torchops.verdicts import WHAT, applies, differs, throws
from miniapps.system.scope import apart

# The audited operation of each class of torch.nn; its cases take the input, then the parameters in PARAMETERS' order.
MODULES = {
    "AdaptiveAvgPool2d": "adaptive_avg_pool2d", "AdaptiveAvgPool3d": "adaptive_avg_pool3d",
    "AdaptiveMaxPool2d": "adaptive_max_pool2d", "AvgPool1d": "avg_pool1d", "AvgPool2d": "avg_pool2d",
    "AvgPool3d": "avg_pool3d", "BatchNorm1d": "batch_norm", "BatchNorm2d": "batch_norm", "BatchNorm3d": "batch_norm",
    "Bilinear": "bilinear", "CircularPad2d": "circular_pad2d", "Conv1d": "conv1d", "Conv2d": "conv2d",
    "Conv3d": "conv3d", "ConvTranspose1d": "conv_transpose1d", "ConvTranspose2d": "conv_transpose2d",
    "ConvTranspose3d": "conv_transpose3d", "CrossEntropyLoss": "cross_entropy", "Embedding": "embedding",
    "EmbeddingBag": "embedding_bag", "Fold": "fold", "GELU": "gelu", "GRU": "gru", "GroupNorm": "group_norm",
    "KLDivLoss": "kl_div", "LSTM": "lstm", "LayerNorm": "layer_norm", "Linear": "linear", "MSELoss": "mse_loss",
    "MaxPool2d": "max_pool2d", "MaxPool3d": "max_pool3d", "MultiheadAttention": "scaled_dot_product_attention",
    "NLLLoss": "nll_loss", "NonDynamicallyQuantizableLinear": "linear", "RNN": "rnn",
    "ReflectionPad1d": "reflection_pad1d", "ReflectionPad2d": "reflection_pad2d",
    "ReflectionPad3d": "reflection_pad3d", "ReplicationPad1d": "replication_pad1d",
    "ReplicationPad2d": "replication_pad2d", "ReplicationPad3d": "replication_pad3d", "Sigmoid": "sigmoid",
    "Softmax": "softmax", "Tanh": "tanh", "Unfold": "unfold", "Upsample": "interpolate",
}  # fmt: skip
FIRST = ("embedding", "embedding_bag")  # operations whose cases begin with the weight
PARAMETERS = {
    "input": 0, "weight": 1, "bias": 2,
    "weight_ih_l0": 1, "weight_hh_l0": 2, "bias_ih_l0": 3, "bias_hh_l0": 4,
}  # fmt: skip
# Operations whose bits kernels.contract makes independent of threads and of the batch (docs/explanation/contract.md).
CONTRACT = {
    "linear": "matmul", "conv1d": "conv", "conv2d": "conv", "conv3d": "conv",
    "scaled_dot_product_attention": "attention",
}  # fmt: skip
MODE, OURS = "torch.use_deterministic_algorithms(True)", "fpna.torch.replaced()"


@dataclass(frozen=True)
class Audited:
    """The certificate of the run `run` as plain values; `started` and `environment` are those of the run."""

    run: str
    started: str
    environment: dict[str, str]
    certificate: dict[str, Any]


def remarks_on(
    operation: Operation, audits: Sequence[Audited], environment: dict[str, str]
) -> list[tuple[str, str]]:
    """(label, text) about an operation that differs in a run with this `environment`: the findings of `audits`, and
    what ends the difference. Without an audit of it, the command that makes one."""
    name = MODULES.get(operation.module)
    if name is None:
        what = (
            f"{operation.module} is no audited class of torch.nn"
            if operation.module
            else "it is in no module"
        )
        return [("operation", f"{what}; to audit a function of yours: fpna operations FILE.py:FUNCTION")]
    title = _title(name, operation)
    known = [each for each in audits if _cases(each, name, operation)]
    if not known:
        command = f"fpna operations --operation {name} --cases 0 --out AUDIT"
        return [
            ("operation", f"{title}: no audit of it is given; make one, {command}, and add --audit AUDIT")
        ]
    best = max(known, key=lambda each: (not _apart(each, environment), each.started))
    cases = _cases(best, name, operation)
    lines = [
        (
            "operation",
            f"{title}: {_found(cases, operation)}; {_documented(best, cases)}; {_source(best, environment)}",
        )
    ]
    return lines + ([("ends with", text)] if (text := _ends(name, cases, operation)) else [])


@once
def audited(frames: Frames) -> list[Audited]:
    """The audits among the runs of `frames`."""
    runs = frames.runs.drop_duplicates("run").set_index("run")
    return [
        Audited(run, str(runs.loc[run, "started"]), json.loads(runs.loc[run, "environment"]),
                msgspec.to_builtins(certificate))
        for run, certificate in certificates(frames)[0].items()
    ]  # fmt: skip


def _title(name: str, operation: Operation) -> str:
    if operation.direction == "forward":
        return f"{name}, forward"
    return f"{name}, gradient of its {operation.part}" if operation.part else f"{name}, backward"


def _cases(audit: Audited, name: str, operation: Operation) -> list[dict[str, Any]]:
    """The audited cases of an operation and direction; those of its type of numbers where there are any."""
    same = [
        case
        for case in audit.certificate["cases"]
        if (case["operation"], case["direction"]) == (name, operation.direction) and case["audit"]
    ]
    typed = [case for case in same if case["factors"].get("dtype", "float32") == operation.dtype]
    return typed or same


def _leaf(name: str, operation: Operation) -> str:
    """The name of a part of the operation's result in a certificate; empty: all parts count."""
    place = PARAMETERS.get(operation.part, -1) - (name in FIRST)
    return f"gradient of argument {place}" if operation.direction == "backward" and place >= 0 else ""


def _altered(case: dict[str, Any], change: str, operation: Operation) -> bool:
    """Whether a change altered this part of the result; all parts count where the certificate names none."""
    if not differs(case, change):
        return False
    parts, leaf = case["audit"][change].get("parts") or [], _leaf(case["operation"], operation)
    return not parts or not leaf or leaf in parts


def _found(cases: Sequence[dict[str, Any]], operation: Operation) -> str:
    """`differs with the number of threads (2 of 2 cases)`."""
    found = []
    for change, what in WHAT.items():
        tried = [case for case in cases if case["audit"].get(change)]
        if count := sum(_altered(case, change, operation) for case in tried):
            found.append(f"{what} ({count} of {counted(len(tried), 'case')})")
    if found:
        return f"differs {', '.join(found)}"
    tried_changes = [WHAT[change] for change in WHAT if any(case["audit"].get(change) for case in cases)]
    return f"no difference seen {', '.join(tried_changes)} in {counted(len(cases), 'case')}; other sizes were not tried"


def _documented(audit: Audited, cases: Sequence[dict[str, Any]]) -> str:
    certificate = audit.certificate
    stated = [
        each["text"]
        for each in certificate["statements"]
        if any(applies(each, case, certificate["device"]) for case in cases)
    ]
    return (
        f"torch's documentation says: {'; '.join(stated)}" if stated else "torch's documentation says nothing"
    )


def _source(audit: Audited, here: dict[str, str]) -> str:
    """The day of the audit, and how its environment differs from that of the run."""
    others = _apart(audit, here)
    where = f"another environment than the run: {', '.join(others)}" if others else "this machine and torch"
    return f"audit of {audit.started[:10]} ({audit.run}), {where}"


def _apart(audit: Audited, here: dict[str, str]) -> list[str]:
    """Entries of the environment that differ; threads are left out, since the audit varies them."""
    return [key for key, *_ in apart(audit.environment, here, "layout") if key != "sources"]


def _ends(name: str, cases: Sequence[dict[str, Any]], operation: Operation) -> str:
    """The settings and operators that end the difference in all cases that differ, then those that do not."""
    racing = [case for case in cases if _altered(case, "runs", operation)]
    threaded = [case for case in cases if _altered(case, "threads", operation)]
    batched = [case for case in cases if _altered(case, "batch", operation)]
    does: list[str] = []
    does_not: list[str] = []
    if racing and all((case["audit"]["runs"].get("by") or {}).get("1", 2) == 1 for case in racing):
        does.append("one thread: torch.set_num_threads(1)")
    elif threaded and not racing:
        does.append("one number of threads in both runs: torch.set_num_threads(N)")
    if differing := [*racing, *(case for case in threaded if case not in racing)]:
        for setting, key in ((MODE, "mode"), (OURS, "replaced")):
            if all(case["audit"].get(key) for case in differing):
                (does if all(_repeats(case, key) for case in differing) else does_not).append(setting)
    elif batched:
        does.append("one size of the batch in both runs")
    if (differing or batched) and name in CONTRACT:
        does.append(f"kernels.contract.{CONTRACT[name]}, for any threads and batch")
    words = [f"does not end with {' or '.join(does_not)}"] if does_not else []
    return "; ".join([" or ".join(does), *words]) if does or does_not else ""


def _repeats(case: dict[str, Any], key: str) -> bool:
    """Whether a case repeats its bits in torch's deterministic mode, or inside of fpna.torch.replaced()."""
    tried = case["audit"].get(key) or {}
    if key == "mode" and throws(case):
        return False
    seen = [tried.get(change) for change in ("runs", "threads")]
    return bool(tried.get("runs")) and all(each is None or each["distinct"] == 1 for each in seen)
