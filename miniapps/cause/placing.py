"""Compare the difference of two runs with differences by rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from miniapps.cause import directions
from miniapps.cause.directions import Launched, Stay
from miniapps.cause.sizes import KEY, Sizes, added, at_steps_of, common, on_ranks_alone
from miniapps.trace.records import RECEIVED, SOURCE

ROUNDING, NOT_ROUNDING, OPEN = "rounding", "not rounding", "open"
# Bounds of the ratio of the difference of two runs to that of the farthest of ten disturbed launches. If the runs were
# two more such launches and distances normal, the ratio would exceed 1 in one record of 11, 2 in one of 200, 4 in one
# of 30,000 and 8 in less than one of two million.
WITHIN = 3.0  # up to here rounding explains the difference
BEYOND = 8.0  # from here on rounding is ruled out
# If undisturbed launches on one thread differ by this share of the numbers or more, the cause is not rounding, which
# repeats there.
LARGE = 2.0**-32


@dataclass(frozen=True)
class Place:
    """A record of both runs.

    `apart`: the distance of the runs. `reach`: the largest distance of a disturbed launch from an undisturbed one.
    `ratio`: `apart` over `reach`. `units`: the reach in units in the last place of the sum of absolute values (0 for
    integers)."""

    name: str
    step: int
    block: int
    apart: float
    reach: float
    ratio: float
    units: float


@dataclass(frozen=True)
class Unrepeated:
    """The first record that differs between the two runs and also between identical launches: `apart` is the distance
    of these launches, `size` the sum of absolute values."""

    name: str
    step: int
    apart: float
    size: float


@dataclass(frozen=True)
class Directed:
    """`still`: a launch as B, undisturbed. `a`, `b`: launches as A and as B, (upward, downward) each."""

    still: Sizes
    a: Sequence[Sizes]
    b: Sequence[Sizes]


@dataclass(frozen=True)
class Verdict:
    """The answer of the experiment.

    kind, why    ROUNDING, NOT_ROUNDING or OPEN, and the reason in words
    first, worst the first record that differs and can be judged, and the one with the largest `ratio`
    unrepeated   the first record that differs between identical launches, too
    compared     how many records all runs and launches have
    differing    how many of these differ between A and B
    unstable     how many of the differing ones have names whose records differ between identical launches
    integers     how many of the other differing ones hold integers that no launch changed
    launch       the disturbed launch that reaches farthest in `worst`
    repeats      whether an undisturbed launch gave the bits of A
    stay, at     the part of the difference that stays in launches that round upward and downward, and the name and the
                 step of its first record; None unless these launches were made and a launch as B gave the bits of B
    """

    kind: str
    why: str
    first: Place | None
    worst: Place | None
    unrepeated: Unrepeated | None
    compared: int
    differing: int
    unstable: int
    integers: int
    launch: int | None = None
    repeats: bool = False
    stay: Stay | None = None
    at: tuple[str, int] | None = None


def judge(
    a: Sizes,
    b: Sizes,
    still: Sequence[Sizes],
    disturbed: Sequence[Sizes],
    names: dict[str, int],
    again: Mapping[int, Sizes] | None = None,
    directed: Directed | None = None,
) -> Verdict:
    """Compare the difference of `a` and `b` with the differences of `disturbed` launches from `still[0]`.

    `still` are undisturbed launches, and `again[i]` is a second launch with the seed of `disturbed[i]`. If launches
    that must be identical differ in records of a name, the disturbance is not the cause, so `judge` leaves this name
    out. `names` are those of `sizes.read`. With `directed` launches, `judge` also tests whether the difference stays
    when rounding changes.
    """
    again = again or {}
    texts = {number: text for text, number in names.items()}
    skipped = _by_arrival(a, b) | {name for name in names if on_ranks_alone(a, b, name)}
    runs = [a, b, *still, *disturbed, *again.values()]
    runs += [directed.still, *directed.a, *directed.b] if directed else []
    runs = [at_steps_of(a, run, names) for run in runs]
    keys, rows = common(runs)
    fields = keys.view(KEY)
    numbers = [run.numbers[row] for run, row in zip(runs, rows, strict=True)]
    l1 = [run.l1[row] for run, row in zip(runs, rows, strict=True)]
    counts = [run.count[row] for run, row in zip(runs, rows, strict=True)]
    judged = np.array([texts[int(number)] not in skipped for number in fields["name"]], bool)
    judged &= np.all([count == counts[0] for count in counts], axis=0)
    apart = _distance(numbers[0], numbers[1])
    differs = judged & ((apart > 0) | (l1[0] != l1[1]))
    base, begin = 2, 2 + len(still)
    alike = [(base, other) for other in range(base + 1, begin)]
    alike += [(begin + i, begin + len(disturbed) + k) for k, i in enumerate(again)]
    scatter = np.zeros(len(keys))
    for one, other in alike:
        scatter = np.maximum(scatter, _distance(numbers[one], numbers[other]))
    stable = ~np.isin(fields["name"], fields["name"][scatter > 0])
    reaches = np.zeros((len(disturbed), len(keys)))
    for i in range(len(disturbed)):
        reaches[i] = _distance(numbers[base], numbers[begin + i])
    reach = reaches.max(axis=0, initial=0.0)
    size = np.where(np.isfinite(l1[base]), l1[base], 0.0)
    unit = a.unit[rows[0]]
    ratio = _ratio(apart, np.maximum(reach, unit * size))
    units = np.divide(reach, unit * size, out=np.zeros(len(reach)), where=unit * size > 0)
    integers = _integers(numbers[0]) & _integers(numbers[1]) & (reach == 0)
    telling = differs & stable & ~integers
    extremes = _extremes(telling, fields["step"], ratio)
    places = [
        Place(texts[int(fields["name"][i])], int(fields["step"][i]), _signed(fields["block"][i]), float(apart[i]),
              float(reach[i]), float(ratio[i]), float(units[i]))
        for i in extremes
    ]  # fmt: skip
    first, worst = places or (None, None)
    launch = int(np.argmax(reaches[:, extremes[1]])) if extremes and len(disturbed) else None
    unstable = _extremes(differs & (scatter > 0), fields["step"], scatter)
    unrepeated = None
    if unstable:
        row = unstable[0]
        unrepeated = Unrepeated(
            texts[int(fields["name"][row])], int(fields["step"][row]), float(scatter[row]), float(size[row])
        )
    counts_by_kind = {
        "compared": int(judged.sum()), "differing": int(differs.sum()), "unstable": int((differs & ~stable).sum()),
        "integers": int((differs & stable & integers).sum()),
    }  # fmt: skip
    kind, why = _verdict(first, worst, unrepeated, counts_by_kind, len(disturbed))
    repeats = bool(np.array_equal(numbers[0][telling], numbers[base][telling], equal_nan=True))
    stay: Stay | None = None
    at: tuple[str, int] | None = None
    if directed and repeats and kind in (ROUNDING, OPEN) and worst is not None:
        given = np.maximum(*(added(run, names, keys) * run.layout.size for run in runs[:2]))
        stay = _stay(
            [part[telling] for part in (numbers[0], numbers[1], *numbers[-5:])], fields[telling],
            np.maximum(reach, unit * size)[telling], (unit * np.maximum(given, size))[telling],
        )  # fmt: skip
    if stay is not None:
        key = fields[telling][stay.row]
        at = texts[int(key["name"])], int(key["step"])
        kind, why = _where_it_stays(kind, why, stay, *at)
    return Verdict(
        kind,
        why,
        first,
        worst,
        unrepeated,
        **counts_by_kind,
        launch=launch,
        repeats=repeats,
        stay=stay,
        at=at,
    )


def _stay(parts: list[np.ndarray], keys: np.ndarray, scale: np.ndarray, least: np.ndarray) -> Stay | None:
    """The part of the difference that stays when rounding changes; None if a launch as B differs from B, or no record
    can be judged.

    `parts`: the numbers of A, of B, of a launch as B, of A upward and downward, and of B upward and downward."""
    a, b, still, a_up, a_down, b_up, b_down = parts
    if not np.array_equal(b, still, equal_nan=True):
        return None
    return directions.judge(
        Launched(a, a_up, a_down), Launched(b, b_up, b_down), keys["name"], keys["step"], scale, least
    )


def _where_it_stays(kind: str, why: str, stay: Stay, name: str, step: int) -> tuple[str, str]:
    """The verdict after launches that round upward and downward."""
    if stay.moves:
        return kind, why
    words = f"in {name} from step {step} on it is {stay.ratio:.2g} times the change by rounding"
    if stay.stays:
        return NOT_ROUNDING, f"the difference stays when all operations round upward or downward: {words}"
    return OPEN, f"the difference may stay when all operations round upward or downward: {words}"


def _verdict(
    first: Place | None,
    worst: Place | None,
    unrepeated: Unrepeated | None,
    counts_by_kind: dict[str, int],
    launches: int,
) -> tuple[str, str]:
    if worst is not None and worst.ratio >= BEYOND:
        return NOT_ROUNDING, f"changes of the size of rounding move {worst.name} by at most {worst.reach:.2g}"
    if not counts_by_kind["compared"]:
        return OPEN, "the runs and the launches have no numbers in common"
    if not counts_by_kind["differing"]:
        return OPEN, "the two runs agree in every record that all launches also have"
    if worst is None and unrepeated is not None:
        return (NOT_ROUNDING if unrepeated.apart > LARGE * unrepeated.size else OPEN), (
            f"{unrepeated.name} differs by {unrepeated.apart:.2g} between two identical launches, in which "
            "rounding repeats: a clock, random numbers, uninitialised memory, or a race"
        )
    if worst is None and counts_by_kind["unstable"]:
        return OPEN, "all records that differ between the runs also differ between identical launches"
    if worst is None:
        return OPEN, f"only whole numbers differ, and none of {launches} disturbed launches changed one"
    if worst.ratio > WITHIN:
        return (
            OPEN,
            f"in one record A and B lie {worst.ratio:.1f} times as far apart as the farthest of {launches} disturbed "
            "launches",
        )
    return ROUNDING, (
        f"in all records A and B lie at most {worst.ratio:.2g} times as far apart as disturbed launches"
    )


def _by_arrival(a: Sizes, b: Sizes) -> set[str]:
    """Names of receives from any source that got messages from different ranks in the two runs."""
    moved = {name for name in {*a.sources, *b.sources} if a.sources.get(name) != b.sources.get(name)}
    return {f"{RECEIVED}{name.removeprefix(SOURCE)}" for name in moved}


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The distance of the numbers of two runs, by the largest projection; infinite if only one is not finite."""
    with np.errstate(invalid="ignore"):
        parts = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    parts = np.where(same, 0.0, np.where(np.isnan(parts), np.inf, parts))
    return parts.max(axis=1) if len(parts) else np.zeros(0)


def _integers(numbers: np.ndarray) -> np.ndarray:
    """A mask of the records whose numbers are all integers."""
    with np.errstate(invalid="ignore"):
        return (numbers == np.rint(numbers)).all(axis=1) if len(numbers) else np.zeros(0, bool)


def _ratio(apart: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """`apart` over `reach`: 0 if the runs are equal, or if a launch lies infinitely far, too."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((apart == 0) | np.isinf(reach), 0.0, apart / reach)


def _extremes(telling: np.ndarray, step: np.ndarray, ratio: np.ndarray) -> list[int]:
    """The rows of the first record and of the one with the largest ratio; none if no record is `telling`."""
    rows = np.flatnonzero(telling)
    return [int(rows[np.argmin(step[rows])]), int(rows[np.argmax(ratio[rows])])] if len(rows) else []


def _signed(block: int) -> int:
    return int(np.uint32(block).astype(np.int32))
