"""Drawing of a schedule: a vertical line for every rank, a band for every round, an arrow for every message."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from kernels.allreduce.instruments import svg
from kernels.allreduce.instruments.svg import Piece
from kernels.allreduce.instruments.timeline import Arrow, Band, Dot, bands
from kernels.allreduce.schedule import Schedule

RANKS = 64  # at most, to be distinguishable
LABELLED = 16  # ranks, at most, for numbers inside the picture
_LEFT = 66  # for the names of the rounds


@dataclass(frozen=True)
class _Scale:
    """Lengths in a picture, by the number of ranks."""

    across: float  # from rank to rank
    radius: float  # of an addition
    head: float
    weight: float
    slope: float  # height of a band over the length of its longest message
    fan: float  # between messages that one rank sends or receives in a round
    labelled: bool


def _scale(size: int) -> _Scale:
    if size <= 8:
        return _Scale(88, 8, 9, 1.6, 0.06, 6, True)
    if size <= LABELLED:
        return _Scale(56, 7.5, 8, 1.4, 0.03, 5, True)
    if size <= 32:
        return _Scale(30, 3.5, 6, 1, 0.02, 2.5, False)
    return _Scale(18, 2.5, 4.5, 0.8, 0.01, 1.5, False)


def schedule_piece(schedule: Schedule, n: int, nodes: Sequence[int] | None = None) -> Piece:
    """A schedule for a vector of n > 0. Colours are the classes `c0`, `c1`, ... of the chunks.

    `nodes`, the node of every rank, are shown where given.
    """
    scale, size = _scale(schedule.size), schedule.size
    xs = [_LEFT + scale.across * (rank + 0.5) for rank in range(size)]
    top = 44 if nodes is not None else 26
    shades, arrows, dots = [], [], []
    y = float(top)
    rounds = bands(schedule, n)
    width = _LEFT + scale.across * size
    for index, band in enumerate(rounds):
        travel, adding = _heights(band, scale)
        ends = _ends(band.arrows, y + 5, y + 5 + travel, scale)
        paths = _paths(band.arrows, ends, xs)
        for arrow, path in zip(band.arrows, paths, strict=True):
            arrows.append(_arrow(index, arrow, path, schedule.chunks, scale))
        if scale.labelled and schedule.chunks > 1 and _crowd(band) <= 3:
            ground = "paper" if index % 2 else "band"
            arrows.extend(_labels(band.arrows, paths, ground))
        dots.extend(_row(index, band.dots, xs, y + 5 + travel + 4, schedule.chunks, scale))
        height = max(16, 5 + travel + adding + 7)
        if index % 2 == 0:
            shades.append(svg.element("rect", x=0, y=y, width=width, height=height, class_="band"))
        name = f"round {index}" if index == 0 or height >= 20 else str(index)
        shades.append(svg.text(8, y + min(18, height - 2), name, 11, "soft"))
        y += height
    heads = [
        svg.text(x, top - 8, str(rank), 11 if scale.labelled else 9, "ink middle bold")
        for rank, x in enumerate(xs)
    ]
    heads.append(svg.text(8, top - 8, "rank", 11, "soft"))
    lines = [
        svg.element("path", d=f"M{svg.number(x)} {svg.number(top)}V{svg.number(y + 6)}", class_="faint line")
        for x in xs
    ]
    ends_ = [svg.element("rect", x=x - 4, y=y + 6, width=8, height=8, class_="ink") for x in xs]
    ends_.append(svg.text(8, y + 14, "total", 11, "soft"))
    groups = _groups(nodes, xs, scale.across) if nodes is not None else []
    body = "".join([*shades, *lines, *groups, *heads, *arrows, *dots, *ends_])
    return Piece(width, y + 16, svg.element("g", body, stroke_width=scale.weight))


def signs(schedule: Schedule, n: int) -> list[tuple[Piece, str]]:
    """The legend of the signs that occur."""
    rounds = bands(schedule, n)
    arrows = [arrow for band in rounds for arrow in band.arrows]
    dots = [dot for band in rounds for dot in band.dots]
    entries = []
    if schedule.chunks > 1:
        shown = min(schedule.chunks, 8)
        colours = [round(i * (schedule.chunks - 1) / (shown - 1)) for i in range(shown)]
        squares = [
            svg.element("rect", x=10 * i, y=3, width=10, height=10, class_=f"c{chunk}")
            for i, chunk in enumerate(colours)
        ]
        entries.append((Piece(10 * shown, 16, "".join(squares)), f"chunks 0\u2026{schedule.chunks - 1}"))
    if any(_several(arrow, schedule.chunks) for arrow in arrows):
        entries.append((_stroke("soft"), "several chunks"))
    if any(not arrow.total for arrow in arrows):
        entries.append((_stroke("c0"), "contributions, partial sums"))
    if any(arrow.total for arrow in arrows):
        entries.append((_stroke("c0 dashed"), "totals"))
    scale = _scale(2)
    if any(dot.summands > 1 and not dot.total for dot in dots):
        sign = _dot(8, 8, Dot(0, 0, 1, 2, False), 1, scale)
        entries.append((Piece(16, 16, sign), "sum of that many"))
    if any(dot.summands > 1 and dot.total for dot in dots):
        sign = _dot(10, 8, Dot(0, 0, 1, 2, True), 1, scale)
        entries.append((Piece(20, 16, sign), "sum that gives a total"))
    if any(dot.summands == 1 for dot in dots):
        entries.append((Piece(16, 16, _dot(8, 8, Dot(0, 0, 1, 1, False), 1, scale)), "copy"))
    return entries


def _stroke(class_: str) -> Piece:
    return Piece(26, 16, svg.element("path", d="M0 8H26", stroke_width=1.6, class_=f"{class_} line"))


def _heights(band: Band, scale: _Scale) -> tuple[float, float]:
    """Heights for the messages of a round, and for its sums."""
    if band.arrows:
        far = max(abs(a.sender - a.receiver) for a in band.arrows) * scale.across
        least = 34 if scale.labelled else 12
        fans = scale.fan * (_most(band, "sender") + _most(band, "receiver") - 2)
        travel = min(least + scale.slope * far, 2 * least) + fans
    else:
        travel = 0
    rows = max((math.ceil(k / _fitting(scale)) for k in _per_rank(band.dots)), default=0)
    return travel, rows * (2 * scale.radius + 4) + (4 if rows else 0)


def _most(band: Band, end: str) -> int:
    ranks = [getattr(arrow, end) for arrow in band.arrows]
    return max(ranks.count(rank) for rank in set(ranks))


def _crowd(band: Band) -> int:
    """Most messages that a rank sends or receives in a round."""
    return max((_most(band, end) for end in ("sender", "receiver") if band.arrows), default=0)


def _per_rank(dots: Sequence[Dot]) -> list[int]:
    return [len(list(same)) for _, same in groupby(dots, lambda dot: dot.rank)]


def _fitting(scale: _Scale) -> int:
    """How many additions fit side by side."""
    return max(1, int((scale.across - 14) // (2 * scale.radius + 6)))


def _ends(arrows: Sequence[Arrow], start: float, stop: float, scale: _Scale) -> list[tuple[float, float]]:
    """Where every arrow begins and ends, downward. Far messages leave early and arrive late, so that the arrows of a
    rank do not cross."""
    begin, end = [start] * len(arrows), [stop] * len(arrows)
    for rank in {arrow.sender for arrow in arrows}:
        mine = [i for i, a in enumerate(arrows) if a.sender == rank]
        for place, i in enumerate(sorted(mine, key=lambda i: (-_reach(arrows[i]), arrows[i].place))):
            begin[i] = start + place * scale.fan
    for rank in {arrow.receiver for arrow in arrows}:
        mine = [i for i, a in enumerate(arrows) if a.receiver == rank]
        for place, i in enumerate(sorted(mine, key=lambda i: (-_reach(arrows[i]), -arrows[i].place))):
            end[i] = stop - place * scale.fan
    return list(zip(begin, end, strict=True))


def _reach(arrow: Arrow) -> int:
    return abs(arrow.sender - arrow.receiver)


Path = tuple[float, float, float, float, float, float]  # start, control point, end of a quadratic curve


def _paths(arrows: Sequence[Arrow], ends: Sequence[tuple[float, float]], xs: Sequence[float]) -> list[Path]:
    """Straight lines; several messages between the same two ranks bend apart."""
    result = []
    for arrow, (y0, y1) in zip(arrows, ends, strict=True):
        x0, x1 = xs[arrow.sender], xs[arrow.receiver]
        bend = math.copysign(14.0, x1 - x0) * (arrow.place - (arrow.among - 1) / 2)
        away = math.hypot(x1 - x0, y1 - y0)
        middle = (x0 + x1) / 2 - bend * (y1 - y0) / away, (y0 + y1) / 2 + bend * (x1 - x0) / away
        result.append((x0, y0, *middle, x1, y1))
    return result


def _at(path: Path, t: float) -> tuple[float, float]:
    a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t * t
    return a * path[0] + b * path[2] + c * path[4], a * path[1] + b * path[3] + c * path[5]


def _several(arrow: Arrow | Dot, chunks: int) -> bool:
    return arrow.stop - arrow.start > 1 and chunks > 1


def _colour(what: Arrow | Dot, chunks: int) -> str:
    return "soft" if _several(what, chunks) else f"c{what.start}"


def _arrow(index: int, arrow: Arrow, path: Path, chunks: int, scale: _Scale) -> str:
    x0, y0, xc, yc, x1, y1 = path
    straight = abs(xc - (x0 + x1) / 2) < 0.05 and abs(yc - (y0 + y1) / 2) < 0.05
    away = math.hypot(x1 - xc, y1 - yc)
    ux, uy = (x1 - xc) / away, (y1 - yc) / away
    back = [(x1 - scale.head * ux + side * uy, y1 - scale.head * uy - side * ux) for side in _sides(scale)]
    xe, ye = x1 - 0.7 * scale.head * ux, y1 - 0.7 * scale.head * uy  # the line ends inside the head
    via = "L" if straight else f"Q{_point(xc, yc)} "
    class_ = f"{_colour(arrow, chunks)} line" + (" dashed" if arrow.total else "")
    line = svg.element("path", d=f"M{_point(x0, y0)}{via}{_point(xe, ye)}", class_=class_)
    head = f"M{_point(x1, y1)}L{_point(*back[0])}L{_point(*back[1])}Z"
    tip = svg.element("path", d=head, class_=f"{_colour(arrow, chunks)} flat")
    tooltip = f"round {index}: rank {arrow.sender} to rank {arrow.receiver}, {_chunks(arrow, chunks)}, " + (
        "total" if arrow.total else f"of {arrow.count}"
    )
    return svg.element("g", svg.title(tooltip), line, tip, class_="message")


def _sides(scale: _Scale) -> tuple[float, float]:
    return 0.42 * scale.head, -0.42 * scale.head


def _point(x: float, y: float) -> str:
    return f"{svg.number(x)} {svg.number(y)}"


def _chunks(what: Arrow | Dot, chunks: int) -> str:
    if chunks == 1:
        return "the whole vector"
    if what.stop - what.start == 1:
        return f"chunk {what.start}"
    return f"chunks {what.start}\u2026{what.stop - 1}"


def _labels(arrows: Sequence[Arrow], paths: Sequence[Path], ground: str) -> list[str]:
    """The numbers of chunks, on arrows with room for them."""
    points = [[_at(path, t / 16) for t in range(17)] for path in paths]
    taken: list[tuple[float, float, float]] = []
    result = []
    for i, (arrow, path) in enumerate(zip(arrows, paths, strict=True)):
        label = str(arrow.start) if arrow.stop - arrow.start == 1 else f"{arrow.start}\u2026{arrow.stop - 1}"
        half = 3.8 * len(label)
        best = (0.0, 0.0, 0.0)
        for t in (0.24, 0.32, 0.4, 0.5, 0.6, 0.68):
            x, y = _at(path, t)
            if any(abs(x - ox) < half + other + 2 and abs(y - oy) < 12 for ox, oy, other in taken):
                continue
            others = (
                math.hypot(x - px, y - py) for k, line in enumerate(points) if k != i for px, py in line
            )
            room = min(min(others, default=99.0), 14.0)
            if room > best[0] + 0.5:
                best = (room, x, y)
        room, x, y = best
        if room >= 7:
            taken.append((x, y, half))
            colour = "soft" if arrow.stop - arrow.start > 1 else f"c{arrow.start}"
            result.append(
                svg.element(
                    "rect", x=x - half, y=y - 5, width=2 * half, height=10, rx=2, class_=f"{ground} flat"
                )
            )
            result.append(svg.text(x, y + 3.5, label, 10, f"{colour} middle bold"))
    return result


def _row(
    index: int, dots: Sequence[Dot], xs: Sequence[float], y: float, chunks: int, scale: _Scale
) -> list[str]:
    """The additions of a round, side by side around the line of their rank."""
    result, fitting, step = [], _fitting(scale), 2 * scale.radius + 6
    for rank, same in groupby(dots, lambda dot: dot.rank):
        mine = list(same)
        for i, dot in enumerate(mine):
            row = mine[i // fitting * fitting :][:fitting]
            x = xs[rank] + (i % fitting - (len(row) - 1) / 2) * step
            down = y + scale.radius + 2 + i // fitting * (2 * scale.radius + 4)
            verb = f"adds {dot.summands} of" if dot.summands > 1 else "copies"
            tooltip = f"round {index}: rank {rank} {verb} {_chunks(dot, chunks)}" + (
                ", total" if dot.total else ""
            )
            result.append(
                svg.element("g", svg.title(tooltip), _dot(x, down, dot, chunks, scale), class_="sum")
            )
    return result


def _dot(x: float, y: float, dot: Dot, chunks: int, scale: _Scale) -> str:
    colour, r = _colour(dot, chunks), scale.radius
    if dot.summands == 1:
        return svg.element("circle", cx=x, cy=y, r=0.4 * r, stroke_width=1, class_=f"{colour} line")
    parts = [svg.element("circle", cx=x, cy=y, r=r - 1, class_=f"{colour} flat")]
    if dot.total:
        parts.append(svg.element("circle", cx=x, cy=y, r=r + 1.2, stroke_width=1.2, class_=f"{colour} line"))
    if scale.labelled:
        size = 10 if dot.summands < 10 else 8
        parts.append(svg.text(x, y + 0.36 * size, str(dot.summands), size, "paper middle bold"))
    return "".join(parts)


def _groups(nodes: Sequence[int], xs: Sequence[float], across: float) -> list[str]:
    """A line over the ranks of each node."""
    result = [svg.text(8, 14, "node", 11, "soft")]
    for node, same in groupby(range(len(nodes)), nodes.__getitem__):
        ranks = list(same)
        left, right = xs[ranks[0]] - 0.42 * across, xs[ranks[-1]] + 0.42 * across
        result.append(svg.element("path", d=f"M{_point(left, 20)}H{svg.number(right)}", class_="soft line"))
        result.append(svg.text((left + right) / 2, 14, str(node), 11, "soft middle"))
    return result
