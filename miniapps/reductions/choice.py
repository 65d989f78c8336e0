"""Which variants a run takes: those named, or all that suit operation, device and guarantee."""

from __future__ import annotations

import kernels.sums  # noqa: F401 - registers its variants
from kernels import registry
from kernels.guarantees import LEVELS, ChoiceError, known, meets
from kernels.registry import Variant
from miniapps.reductions.config import DEFAULT_REFERENCE
from miniapps.runner.policy import Policy

ON_DEVICE = ("cupy",)  # backends whose arrays lie in device memory
EMULATED = "emulated"  # the backend that draws orders of arrival from a seed, and has no price
# What cannot be had block by block with one thread in each, although it repeats.
NOT_BY_BLOCKS = {("dot", "numpy"): "the BLAS of NumPy decides by itself how many threads add up a block"}


def choose(
    operation: str, wanted: tuple[str, ...], reference: str | None, policy: Policy, device: str
) -> list[Variant]:
    """The variants to run, the reference first. Raises ChoiceError, which lists what can be chosen, for unknown names,
    for what cannot run here, and for what promises too little."""
    suiting = _suiting(operation, policy, device)
    chosen = [_named(operation, name, policy.partial_sum, device, policy) for name in wanted if name != "all"]
    if not wanted or "all" in wanted:
        chosen += suiting
    first = _reference(operation, reference, chosen, suiting, policy, device)
    return list({_key(v): v for v in (first, *chosen)}.values())


def label(variant: Variant) -> str:
    """OPERATION:VARIANT:BACKEND, as in the trace."""
    return ":".join(_key(variant))


def _key(variant: Variant) -> tuple[str, str, str]:
    return variant.operation, variant.name, variant.backend


def _on(device: str, variant: Variant) -> bool:
    return (variant.backend in ON_DEVICE) == (device == "cuda")


def _suiting(operation: str, policy: Policy, device: str) -> list[Variant]:
    return [
        v
        for v in registry.variants(operation)
        if _on(device, v)
        and meets(v.guarantee, policy.partial_sum)
        and not v.unavailable()
        and not _refused(v, policy)
    ]


def _refused(variant: Variant, policy: Policy) -> str | None:
    return NOT_BY_BLOCKS.get((variant.operation, variant.name)) if policy.per_block else None


def _named(operation: str, name: str, needed: str, device: str, policy: Policy) -> Variant:
    """The variant called NAME or NAME@BACKEND, which promises what is `needed`: of several backends the first that can
    run on the device."""
    name, at, backend = name.partition("@")
    variants = registry.variants(operation)
    known(operation, name, dict.fromkeys(v.name for v in variants))
    variants = [v for v in variants if v.name == name]
    if at:
        known(f"backend of {operation} {name!r}", backend, [v.backend for v in variants])
        variants = [v for v in variants if v.backend == backend]
    here = [v for v in variants if _on(device, v)]
    if not here:
        backends = ", ".join(v.backend for v in variants)
        raise ChoiceError(
            f"{operation} {name!r} with backend {backends} does not run with --device {device}; "
            f"choose among {', '.join(dict.fromkeys(v.name for v in _suiting(operation, policy, device)))}"
        )
    able = next((v for v in here if not v.unavailable()), here[0])
    if reason := _refused(able, policy):
        raise ChoiceError(
            f"--guarantee {policy.level}: {operation} {name!r} cannot be had over logical blocks: {reason}; choose "
            f"among {', '.join(dict.fromkeys(v.name for v in _suiting(operation, policy, device)))}"
        )
    try:
        return registry.check(operation, name, needed, able.backend)
    except ChoiceError as error:
        raise ChoiceError(
            f"--guarantee {policy.level}, which asks {needed!r} of a variant here: {error}"
        ) from None


def _reference(
    operation: str,
    name: str | None,
    chosen: list[Variant],
    suiting: list[Variant],
    policy: Policy,
    device: str,
) -> Variant:
    if name is not None:
        needed = max("run", policy.partial_sum, key=LEVELS.index)  # what differs from itself is no reference
        return _named(operation, name, needed, device, policy)
    default = [v for v in suiting if v.name == DEFAULT_REFERENCE]
    fixed = [v for v in chosen or suiting if v.guarantee != "none"] or [
        v for v in suiting if v.guarantee != "none"
    ]
    if not default + fixed:
        raise ChoiceError(
            f"{operation} on --device {device} has no variant for --guarantee {policy.level} that can be the reference"
        )
    return default[0] if default else max(fixed, key=lambda v: LEVELS.index(v.guarantee))
