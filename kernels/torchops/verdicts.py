"""Compares the audits of operations with the statements of torch's documentation.

Every verdict covers only the tried cases, on the audited device, with the number of trials; a difference that was not
seen may still exist. Works on the records of a certificate, without torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernels.torchops.documentation import THROWS

# Verdicts on a statement.
TRUE, FALSE, PARTLY, UNSEEN, UNTRIED = "true", "false", "partly", "not seen", "not tried"
UNTESTABLE = "not testable here"  # it is about another device
MISSING = "missing"  # a difference without a statement
# The effect of the mode on a case that differs between runs.
HELPS, THROWS_INSTEAD, DOES_NOT_HELP = "helps", "throws", "does not help"


@dataclass(frozen=True)
class Verdict:
    """The verdict on a statement or, if `does` is None, on an operation that differs without a statement.

    `trials`: calls of all its cases without the mode; `seen`: the number of `cases` that differ between runs. `mode`:
    the effect of the mode on these. `why`: the reason in words.
    """

    operation: str
    does: str | None
    backward: bool
    verdict: str
    cases: int
    seen: int
    trials: int
    mode: str | None
    why: str
    text: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def applies(statement: dict[str, Any], case: dict[str, Any], device: str) -> bool:
    """Whether a statement is about a case on a device."""
    if statement["operation"] not in case["documented"] or device not in statement["devices"]:
        return False
    if statement["backward"] and case["direction"] != "backward":
        return False
    if "sparse" in case["factors"] and "sparse" not in statement["keywords"]:
        return False
    return all(str(case["factors"].get(key)) in values for key, values in statement["keywords"].items())


def differs(case: dict[str, Any], change: str = "runs", mode: bool = False) -> bool:
    """Whether a change made a difference in an audited case, with the mode or without."""
    record = case["audit"] or {}
    if mode:
        record = record.get("mode", {})
    return (record.get(change) or {}).get("distinct", 1) > 1


def throws(case: dict[str, Any]) -> bool:
    """Whether torch refuses the case in its deterministic mode."""
    return bool((case["audit"] or {}).get("mode", {}).get("throws"))


def helped(case: dict[str, Any]) -> str:
    """The effect of the mode on a case that differs between runs."""
    if throws(case):
        return THROWS_INSTEAD
    return DOES_NOT_HELP if differs(case, mode=True) else HELPS


def verdicts(
    statements: Sequence[dict[str, Any]], cases: Sequence[dict[str, Any]], device: str
) -> list[Verdict]:
    """The verdicts on every statement, then on every operation and direction that differs between runs or throws
    without a statement."""
    audited = [case for case in cases if case["audit"]]
    answer = [_of(statement, audited, device) for statement in statements]
    rest = [case for case in audited if not any(applies(s, case, device) for s in statements)]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for case in rest:
        if differs(case) or throws(case):
            groups.setdefault((case["operation"], case["direction"]), []).append(case)
    for (operation, direction), group in groups.items():
        racing = [case for case in group if differs(case)]
        every = [case for case in rest if (case["operation"], case["direction"]) == (operation, direction)]
        what = "runs differ" if racing else "the mode throws"
        answer.append(
            Verdict(operation, None, direction == "backward", MISSING, len(every), len(racing), _trials(every),
                    _modes(racing or group), f"{what}, and the documentation does not say so")
        )  # fmt: skip
    return answer


def _of(statement: dict[str, Any], cases: Iterable[dict[str, Any]], device: str) -> Verdict:
    def verdict(word: str, why: str, own: Sequence[dict[str, Any]] = ()) -> Verdict:
        seen = [case for case in own if differs(case)]
        return Verdict(statement["operation"], statement["does"], statement["backward"], word, len(own), len(seen),
                       _trials(own), _modes(seen) if seen else None, why, statement["text"])  # fmt: skip

    if device not in statement["devices"]:
        return verdict(
            UNTESTABLE, f"it is about {' and '.join(statement['devices'])}, and this audit ran on {device}"
        )
    own = [case for case in cases if applies(statement, case, device)]
    if not own:
        return verdict(UNTRIED, "no case of this audit is of this kind")
    if statement["does"] == THROWS:
        refused = sum(map(throws, own))
        word = TRUE if refused == len(own) else PARTLY if refused else FALSE
        return verdict(word, f"{refused} of {len(own)} cases throw with mode=True", own)
    refused = sum(map(throws, own))
    still = sum(differs(case, mode=True) for case in own)
    seen = sum(differs(case) for case in own)
    if refused or still:
        ways = [f"{refused} throw"] * bool(refused) + [f"{still} differ between runs"] * bool(still)
        return verdict(FALSE, f"with mode=True {' and '.join(ways)} of {len(own)} cases", own)
    if seen:
        return verdict(TRUE, f"{seen} of {len(own)} cases differ between runs, and none with mode=True", own)
    return verdict(UNSEEN, f"none of {len(own)} cases differs between runs without the mode", own)


def _trials(cases: Iterable[dict[str, Any]]) -> int:
    return sum(case["audit"]["runs"]["trials"] for case in cases)


def _modes(cases: Iterable[dict[str, Any]]) -> str:
    """The effect of the mode on the cases, in words: `helps`, or each effect with its number of cases."""
    ways = [helped(case) for case in cases]
    counts = {way: ways.count(way) for way in dict.fromkeys(ways)}
    return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{way} ({n})" for way, n in counts.items())


def in_words(case: dict[str, Any]) -> list[str]:
    """The findings of a case, a sentence each; the same for a record and for the same record read from a file."""
    case = _in_order(case)
    name, audit, effects = case["name"], case["audit"], case.get("effects") or {}
    if audit is None:
        what = "nothing was compared" if case["outcome"] == "nothing" else case["outcome"]
        return [f"{name}: {what}: {case['error']}"]
    lines = [f"changes its argument {number}" for number in effects.get("writes", ())]
    if drawn := effects.get("random"):
        lines.append(
            f"draws random numbers of {', '.join(drawn)}: the generators were restored before every call, so random "
            "numbers cause none of the following differences"
        )
    lines += effects.get("effects", ())
    lines += [f"leaves torch's {setting} changed" for setting in effects.get("settings", ())]
    lines += [f"not compared: {part}: {why}" for part, why in (audit.get("skipped") or {}).items()]
    alone = audit["runs"].get("by", {}).get("1", 1) > 1  # then no other change can be judged
    pools = audit.get("pools") or {}
    for change, what in WHAT.items():
        if audit.get(change) is not None and (change == "runs" or not alone):
            lines.append(_sentence(change, what, audit[change], pools, effects))
            lines += _failures(change, audit[change])
            known = audit.get("skipped") or {}
            parts = {k: why for k, why in (audit[change].get("skipped") or {}).items() if k not in known}
            lines += [f"not compared {what}: {part}: {why}" for part, why in parts.items()]
    if differs(case):
        left = [
            WHAT[c] for c in WHAT if c != "runs" and (c == "threads" or (alone and audit.get(c) is not None))
        ]
        lines.append(
            f"differences {_listed(left, 'or')} cannot be distinguished from these, and are not judged"
        )
    lines += [f"not tried: {WHAT.get(c, c)}: {why}" for c, why in (audit.get("not_tried") or {}).items()]
    lines += _unvaried(audit, effects)
    mode = audit["mode"]
    if message := mode.get("throws"):
        lines.append(f"in torch's deterministic mode it throws: {message}")
    elif message := mode.get("failed"):
        lines.append(f"in torch's deterministic mode, or while it was timed, it failed: {message}")
    elif differs(case) and not alone:
        lines.append(f"torch's deterministic mode {helped(case)}")
    return [f"{name}: {line}" for line in lines]


WHAT = {
    "runs": "from run to run",
    "threads": "with the number of threads",
    "batch": "with the size of the batch",
    "position": "with the position in the batch",
    "address": "with the address of the inputs",
    "process": "from process to process",
    "cpu": "with the code that libraries choose by the processor",
}
CONDITION = {
    "runs": "threads = {}",
    "batch": "batches of {}",
    "position": "the sample at place {}",
    "address": "inputs {} bytes beyond a multiple of 64",
    "process": "fresh process {}",
    "cpu": "{}",
}


def _sentence(
    change: str, what: str, seen: dict[str, Any], pools: dict[str, list[int]], effects: dict[str, Any]
) -> str:
    varied = [f"{name} {min(counts)} to {max(counts)}" for name, counts in pools.items() if len(counts) > 1]
    if change == "threads":
        what += f" ({', '.join(varied)})" if varied else ""
    if seen["distinct"] == 1:
        return f"no difference {what}: {seen['trials']} trials, so p < {seen['bound']:.2g} at 95 %"
    text = f"differs {what}: {seen['distinct']} results of {seen['trials']} trials{_size(change, seen)}"
    by = seen.get("by") or {}
    if change == "cpu":
        return f"{text}; with {_listed([level for level, distinct in by.items() if distinct > 1], 'and')}"
    if by.get("1", 1) > 1:
        held = f"each pool ({', '.join(pools)})" if len(pools) > 1 else "torch's pool"
        return (
            f"{text}, with one thread in {held}, too: the cause is not the number of these threads. It may be its own "
            "threads, state or random generator, a clock, or the address of its memory"
        )
    if change == "runs" and "1" in by:
        racing = [count for count, distinct in by.items() if distinct > 1]
        text += f"; with {_listed(racing, 'or')} threads, not with one"
    if alone := seen.get("alone"):
        does = [name for name, distinct in alone.items() if distinct > 1]
        does_not = [name for name, distinct in alone.items() if distinct == 1]
        parts = [f"those of {_listed(does, 'and')} alone do it"] * bool(does)
        parts += [f"those of {_listed(does_not, 'or')} alone do not"] * bool(does_not)
        text += f"; {', '.join(parts)}"
    return text


def _size(change: str, seen: dict[str, Any]) -> str:
    """The size of the difference, in words."""
    if seen.get("kinds"):
        text = ", of other names, types or shapes"
    elif seen.get("values"):
        text = ", further apart than one rounding of the largest element: " + (
            "samples that are not independent, or rounding that is cancelled or amplified"
            if change in ("batch", "position")
            else "values that race for one place, or rounding that is cancelled or amplified"
        )
    else:
        return f", at most {seen['ulp']:.0f} ULP" if seen.get("ulp") is not None else ""
    hint = seen.get("hint") or ""
    return f"{text}; {hint}" if hint else text


def _failures(change: str, seen: dict[str, Any]) -> list[str]:
    failed = seen.get("failed") or {}
    by_reason: dict[str, list[str]] = {}
    for place, why in failed.items():
        by_reason.setdefault(why, []).append(CONDITION.get(change, "{}").format(place))
    return [f"with {_listed(places, 'or')} it failed: {why}" for why, places in by_reason.items()]


def _unvaried(audit: dict[str, Any], effects: dict[str, Any]) -> list[str]:
    """Sentences about conditions that may matter and were not varied."""
    lines = []
    held = [name for name, counts in (audit.get("pools") or {}).items() if len(counts) < 2]
    if held:
        lines.append(f"not varied: the number of threads of {_listed(held, 'and')}, which could not be set")
    elsewhere = audit.get("elsewhere") or {}
    started = [what for what in effects.get("effects", ()) if what.startswith("starts ")]
    seconds = elsewhere.get("seconds") or 0.0
    if seconds or started:
        text = "not varied: " + _listed(
            [f"{what.removeprefix('starts ')}, which it starts" for what in started], "and"
        )
        if seconds:
            text += "; " * bool(started) + (
                f"threads outside these pools, which worked {1e3 * seconds:.2g} ms in a call at least"
            )
            text += f" ({', '.join(names)} may have some)" if (names := elsewhere.get("packages")) else ""
        lines.append(text)
    if lacking := elsewhere.get("lacking"):
        lines.append(f"not varied: {lacking}")
    return lines


def _in_order(record: Any) -> Any:
    """`record` with sorted keys in all dicts: numbers by size, torch before other names."""
    if isinstance(record, list | tuple):
        return [_in_order(each) for each in record]
    if not isinstance(record, dict):
        return record
    keys = sorted(record, key=lambda key: (int(key) if key.isdecimal() else -1, key != "torch", key))
    return {key: _in_order(record[key]) for key in keys}


def _listed(names: Sequence[str], word: str) -> str:
    """`a, b or c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}" if names else ""
