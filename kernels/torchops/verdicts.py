"""What was seen of an operation, and what torch's documentation states of it: the two against each other.

Every verdict is of the cases that were tried, on the device that there was, with the number of trials; what was not
seen is not said to be absent. Works on the records of a certificate, without torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernels.torchops.documentation import THROWS

# Of a statement.
TRUE, FALSE, PARTLY, UNSEEN, UNTRIED = "true", "false", "partly", "not seen", "not tried"
UNTESTABLE = "not testable here"  # it is about another device
MISSING = "missing"  # what differs without a statement
# Of a case that differs between runs.
HELPS, THROWS_INSTEAD, DOES_NOT_HELP = "helps", "throws", "does not help"


@dataclass(frozen=True)
class Verdict:
    """What became of a statement, or, with `does` None, of an operation that differs and has none.

    `trials`: calls of all its cases without the mode; `seen`: how many of the `cases` differ between runs. `mode`: what
    the mode does to these. `why`: in words.
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
    """Whether a change made a difference to a case that was audited, with the mode or without."""
    record = case["audit"] or {}
    if mode:
        record = record.get("mode", {})
    return (record.get(change) or {}).get("distinct", 1) > 1


def throws(case: dict[str, Any]) -> bool:
    """Whether torch refuses the case in its deterministic mode."""
    return bool((case["audit"] or {}).get("mode", {}).get("throws"))


def helped(case: dict[str, Any]) -> str:
    """What the mode does to a case that differs between runs."""
    if throws(case):
        return THROWS_INSTEAD
    return DOES_NOT_HELP if differs(case, mode=True) else HELPS


def verdicts(
    statements: Sequence[dict[str, Any]], cases: Sequence[dict[str, Any]], device: str
) -> list[Verdict]:
    """Of every statement, then of every operation and direction that differs between runs, or throws, without one."""
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
    """What the mode does to them, in words: `helps`, or each with its number."""
    ways = [helped(case) for case in cases]
    counts = {way: ways.count(way) for way in dict.fromkeys(ways)}
    return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{way} ({n})" for way, n in counts.items())


def in_words(case: dict[str, Any]) -> list[str]:
    """What was seen of a case, a sentence per finding: the same of a record and of the file that holds it."""
    case = _in_order(case)
    name, audit, effects = case["name"], case["audit"], case.get("effects") or {}
    if audit is None:
        what = "nothing was compared" if case["outcome"] == "nothing" else case["outcome"]
        return [f"{name}: {what}: {case['error']}"]
    lines = [f"changes its argument {number}" for number in effects.get("writes", ())]
    if drawn := effects.get("random"):
        lines.append(
            f"draws random numbers of {', '.join(drawn)}: the generators were put back before every call, so that they "
            "are no part of what follows"
        )
    lines += effects.get("effects", ())
    lines += [f"leaves torch's {setting} changed" for setting in effects.get("settings", ())]
    lines += [f"not compared: {part}: {why}" for part, why in (audit.get("skipped") or {}).items()]
    alone = audit["runs"].get("by", {}).get("1", 1) > 1  # then no other change can be told from it
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
        lines.append(f"differences {_listed(left, 'or')} cannot be told from these, and are not judged")
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
}
CONDITION = {
    "runs": "threads = {}",
    "batch": "batches of {}",
    "position": "the sample at place {}",
    "address": "inputs {} bytes beyond a multiple of 64",
    "process": "fresh process {}",
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
    if by.get("1", 1) > 1:
        held = f"each pool ({', '.join(pools)})" if len(pools) > 1 else "torch's pool"
        return (
            f"{text}, with one thread in {held}, too: so something else than the number of these threads. It may be "
            "threads of its own, state or a generator of its own, a clock, or where its memory lies"
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
    """How far apart the results are, in words."""
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
    """What could have mattered and was held, as far as it was seen."""
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
    """`record` with the keys of all dicts in order: numbers by size, torch before other names."""
    if isinstance(record, list | tuple):
        return [_in_order(each) for each in record]
    if not isinstance(record, dict):
        return record
    keys = sorted(record, key=lambda key: (int(key) if key.isdecimal() else -1, key != "torch", key))
    return {key: _in_order(record[key]) for key in keys}


def _listed(names: Sequence[str], word: str) -> str:
    """`a, b or c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}" if names else ""
