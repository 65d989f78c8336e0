"""Where the difference of two runs lies among those that rounding makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from miniapps.cause import directions
from miniapps.cause.directions import Launched, Stay
from miniapps.cause.sizes import KEY, Sizes, added, common, on_ranks_alone
from miniapps.trace.records import RECEIVED, SOURCE

ROUNDING, NOT_ROUNDING, OPEN = "rounding", "not rounding", "open"
# Two runs may lie so many times as far apart as the farthest disturbed launch. Were they two more such launches, and
# the distances normal, they would lie farther apart than ten of them in one record of 11, twice as far in one of 200,
# four times as far in one of 30,000 and eight times in none of two million.
WITHIN = 3.0
BEYOND = 8.0  # from here on rounding is ruled out
# Undisturbed launches on one thread that differ by such a share of the numbers differ by something else than rounding,
# which then repeats.
LARGE = 2.0**-32


@dataclass(frozen=True)
class Place:
    """A record of both runs: `apart`, how far they lie apart there; `reach`, how far disturbed launches lie from an
    undisturbed one, at most; `ratio`, how many times as far apart they lie as rounding reaches."""

    name: str
    step: int
    block: int
    apart: float
    reach: float
    ratio: float


@dataclass(frozen=True)
class Loose:
    """The first record that differs between the two runs and between launches that are alike, too: `apart`, how far
    these lie apart there, and the sum of absolute values, `size`."""

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
    """`kind`: ROUNDING, NOT_ROUNDING or OPEN, with the reason in words. `first`: the first record that differs and can
    be judged, `worst`: the one in which the runs lie farthest apart, measured by what rounding reaches. Counts of
    records: `compared` in all runs, `differing` between the two, `unstable` ones of these, whose names differ
    between launches that are alike, and `whole` ones, which hold whole numbers that no launch moved. `launch`: which
    disturbed launch reaches farthest in `worst`. `repeats`: an undisturbed launch gave A again. `stay`: how far the
    difference stays in launches that round upward and downward, where these were made and B came again, too; `at`: the
    name and the step of its first record."""

    kind: str
    why: str
    first: Place | None
    worst: Place | None
    loose: Loose | None
    compared: int
    differing: int
    unstable: int
    whole: int
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
    """Place the difference of `a` and `b` among those of `disturbed` launches from the first of the undisturbed ones,
    `still`; `names` as `sizes.read` was given them. `again`: launches of the same seed as `disturbed[i]`, by i. With
    `directed` launches it is also asked whether the difference stays where rounding changes.

    Undisturbed launches are alike, and so are two of one seed. Names whose records differ between launches that are
    alike do not follow from the disturbance, and are left out.
    """
    again = again or {}
    texts = {number: text for text, number in names.items()}
    skipped = _by_arrival(a, b) | {name for name in names if on_ranks_alone(a, b, name)}
    runs = [a, b, *still, *disturbed, *again.values()]
    runs += [directed.still, *directed.a, *directed.b] if directed else []
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
    loose = np.zeros(len(keys))
    for one, other in alike:
        loose = np.maximum(loose, _distance(numbers[one], numbers[other]))
    stable = ~np.isin(fields["name"], fields["name"][loose > 0])
    reaches = np.zeros((len(disturbed), len(keys)))
    for i in range(len(disturbed)):
        reaches[i] = _distance(numbers[base], numbers[begin + i])
    reach = reaches.max(axis=0, initial=0.0)
    size = np.where(np.isfinite(l1[base]), l1[base], 0.0)
    unit = a.unit[rows[0]]
    ratio = _ratio(apart, np.maximum(reach, unit * size))
    whole = _whole(numbers[0]) & _whole(numbers[1]) & (reach == 0)
    telling = differs & stable & ~whole
    extremes = _extremes(telling, fields["step"], ratio)
    places = [
        Place(texts[int(fields["name"][i])], int(fields["step"][i]), _signed(fields["block"][i]), float(apart[i]),
              float(reach[i]), float(ratio[i]))
        for i in extremes
    ]  # fmt: skip
    first, worst = places or (None, None)
    launch = int(np.argmax(reaches[:, extremes[1]])) if extremes and len(disturbed) else None
    unstable = _extremes(differs & (loose > 0), fields["step"], loose)
    shaky = None
    if unstable:
        row = unstable[0]
        shaky = Loose(
            texts[int(fields["name"][row])], int(fields["step"][row]), float(loose[row]), float(size[row])
        )
    told = {
        "compared": int(judged.sum()), "differing": int(differs.sum()), "unstable": int((differs & ~stable).sum()),
        "whole": int((differs & stable & whole).sum()),
    }  # fmt: skip
    kind, why = _verdict(first, worst, shaky, told, len(disturbed))
    repeats = bool(np.array_equal(numbers[0][telling], numbers[base][telling], equal_nan=True))
    stay: Stay | None = None
    at: tuple[str, int] | None = None
    if directed and repeats and kind in (ROUNDING, OPEN) and worst is not None:
        given = np.maximum(*(added(run, names, keys) * run.size for run in (a, b)))
        stay = _stay(
            [part[telling] for part in (numbers[0], numbers[1], *numbers[-5:])], fields[telling],
            np.maximum(reach, unit * size)[telling], (unit * np.maximum(given, size))[telling],
        )  # fmt: skip
    if stay is not None:
        key = fields[telling][stay.row]
        at = texts[int(key["name"])], int(key["step"])
        kind, why = _where_it_stays(kind, why, stay, *at)
    return Verdict(kind, why, first, worst, shaky, **told, launch=launch, repeats=repeats, stay=stay, at=at)


def _stay(parts: list[np.ndarray], keys: np.ndarray, scale: np.ndarray, least: np.ndarray) -> Stay | None:
    """How far the difference stays; `parts`: the numbers of A, B, a launch as B, and A and B upward and downward. None
    where a launch as B is not B, or where nothing tells."""
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
    words = f"in {name} from step {step} on it is {stay.ratio:.2g} times what rounding changes"
    if stay.stays:
        return NOT_ROUNDING, f"the difference stays where all operations round upward or downward: {words}"
    return OPEN, f"the difference may stay where all operations round upward or downward: {words}"


def _verdict(
    first: Place | None, worst: Place | None, shaky: Loose | None, told: dict[str, int], launches: int
) -> tuple[str, str]:
    if worst is not None and worst.ratio >= BEYOND:
        return NOT_ROUNDING, f"changes of the size of rounding move {worst.name} by at most {worst.reach:.2g}"
    if not told["compared"]:
        return OPEN, "the runs and the launches have no numbers in common"
    if not told["differing"]:
        return OPEN, "nothing that all launches recorded differs between the two runs"
    if worst is None and shaky is not None:
        return (NOT_ROUNDING if shaky.apart > LARGE * shaky.size else OPEN), (
            f"{shaky.name} differs by {shaky.apart:.2g} between two launches that are alike, and rounding repeats "
            "there: a clock, random numbers, memory that nobody set, or a race"
        )
    if worst is None and told["unstable"]:
        return OPEN, "all that differs between the runs also differs between launches that are alike"
    if worst is None:
        return OPEN, f"only whole numbers differ, and none of {launches} disturbed launches changed one"
    if worst.ratio > WITHIN:
        return (
            OPEN,
            f"the runs lie {worst.ratio:.1f} times as far apart as the farthest of {launches} disturbed launches",
        )
    return ROUNDING, (
        f"in all records the runs lie at most {worst.ratio:.2g} times as far apart as disturbed launches do"
    )


def _by_arrival(a: Sizes, b: Sizes) -> set[str]:
    """Names of receives from any source that took other ranks' messages: what came there is another message."""
    moved = {name for name in {*a.sources, *b.sources} if a.sources.get(name) != b.sources.get(name)}
    return {f"{RECEIVED}{name.removeprefix(SOURCE)}" for name in moved}


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How far the numbers of two runs lie apart, by the largest projection; infinite where one alone is not finite."""
    with np.errstate(invalid="ignore"):
        parts = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    parts = np.where(same, 0.0, np.where(np.isnan(parts), np.inf, parts))
    return parts.max(axis=1) if len(parts) else np.zeros(0)


def _whole(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return (numbers == np.rint(numbers)).all(axis=1) if len(numbers) else np.zeros(0, bool)


def _ratio(apart: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """How many times `reach` two runs lie apart: 0 where they are equal, or where a launch lies infinitely far, too."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((apart == 0) | np.isinf(reach), 0.0, apart / reach)


def _extremes(telling: np.ndarray, step: np.ndarray, ratio: np.ndarray) -> list[int]:
    """The rows of the first record and of the one farthest apart; none where no record is `telling`."""
    rows = np.flatnonzero(telling)
    return [int(rows[np.argmin(step[rows])]), int(rows[np.argmax(ratio[rows])])] if len(rows) else []


def _signed(block: int) -> int:
    return int(np.uint32(block).astype(np.int32))
