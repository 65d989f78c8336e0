"""The certificate of an audit: the trials of each case with their results, the machine and the software.

It is written to `RUN/certificate.json`. Its reader, `miniapps.untrusted.certificate`, defines the schema.
"""

import hashlib
from typing import Any

from kernels.torchops.documentation import installed
from kernels.torchops.verdicts import FALSE, PARTLY, TRUE, UNSEEN, UNTESTABLE, UNTRIED, in_words, verdicts
from kernels.torchops.worker import DONE
from miniapps.system import environment
from miniapps.untrusted.certificate import CERTIFICATE, SCHEMA
from miniapps.untrusted.result import written


def content(ctx, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The certificate of `records`, which hold all cases in order; on rank 0."""
    import torch

    audit, device = ctx.config.audit, ctx.options.device
    statements = [] if audit.function else [statement.as_dict() for statement in installed()]
    return {
        "schema": SCHEMA,
        "device": device,
        "seed": ctx.seed,
        "runs": audit.runs,
        "software": {
            "torch": torch.__version__,
            "configuration": torch.__config__.show(),
            "capability": torch.backends.cpu.get_cpu_capability(),
        },
        "machine": {
            "cpu": environment.cpu_model(),
            "cores": environment.cores(),
            "instructions": environment.instructions(),
            "variables": environment.variables(),
            "accelerator": environment.accelerator(ctx.options.device),
        },
        "statements": statements,
        "cases": records,
        "verdicts": [verdict.as_dict() for verdict in verdicts(statements, records, device)],
    }


def write(ctx, certificate: dict[str, Any]) -> None:
    """Write the certificate into the directory of the run; each repeat has its own file."""
    name = CERTIFICATE if ctx.repeat == 0 else CERTIFICATE.replace(".", f"-{ctx.repeat}.")
    (ctx.directory() / name).write_text(written(certificate))


def fingerprint(records: list[dict[str, Any]]) -> str:
    """The fingerprint of the bits of all cases with one thread."""
    hashed = hashlib.blake2b(digest_size=16)
    for record in records:
        hashed.update(f"{record['name']} {record['audit'] and record['audit']['digest']}\n".encode())
    return hashed.hexdigest()


def summary(certificate: dict[str, Any]) -> list[str]:
    """The findings of the audit, in a few lines."""
    cases = certificate["cases"]
    if not certificate["statements"]:
        return [line for case in cases for line in in_words(case)]
    done = [case for case in cases if case["outcome"] == DONE]
    lines = [
        f"{len(done)} of {len(cases)} cases of {len({c['operation'] for c in cases})} operations audited"
    ]
    words = [verdict["verdict"] for verdict in certificate["verdicts"]]
    stated = [verdict for verdict in certificate["verdicts"] if verdict["does"]]
    counts = ", ".join(
        f"{words.count(word)} {word}"
        for word in (TRUE, PARTLY, FALSE, UNSEEN, UNTRIED, UNTESTABLE)
        if word in words
    )
    lines.append(f"torch's documentation of its deterministic mode: {len(stated)} statements: {counts}")
    for verdict in certificate["verdicts"]:
        if not verdict["does"]:
            direction = "backward of " if verdict["backward"] else ""
            lines.append(
                f"not documented: {direction}{verdict['operation']}: {verdict['why']}; mode: {verdict['mode']}"
            )
    lost = [case for case in cases if case["outcome"] != DONE]
    return lines + [line for case in lost for line in in_words(case)]
