"""Pictures of orderings show the schedule, and everything is inside the picture."""

import math
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.textpath import TextPath

from kernels.allreduce.catalog import get, orderings
from kernels.allreduce.cost import cost
from kernels.allreduce.instruments import svg
from kernels.allreduce.instruments.draw import distinct, ordering_svg, tree_svg
from kernels.allreduce.reduction import Reduction
from kernels.allreduce.schedule import Message, Round, Schedule, Sum, transfers
from kernels.allreduce.tree import trees, trees_with_makers
from kernels.commands.allreduce import main
from kernels.guarantees import ChoiceError
from kernels.tree import expression, leaves, nodes
from tests.transcripts import PAGE, PICTURES, ROOT, renewed

SVG = "{http://www.w3.org/2000/svg}"
SCHEDULED = [o.name for o in orderings() if o.scheduled]

scheduled = pytest.mark.parametrize("name", SCHEDULED)
sizes = pytest.mark.parametrize("size", [1, 2, 3, 6, 8, 16])


def schedule_of(name, size):
    context = {"nodes": tuple(3 * rank // (2 * size) for rank in range(size)), "owners": tuple(range(size))}
    return get(name).schedule(size, **context)


@cache
def drawn(name, size, n=None, what="both", element=None, nodes=None):
    """The picture as parsed XML, not to be changed, and the length of the vector."""
    schedule = schedule_of(name, size)
    n = max(size, schedule.chunks) if n is None else n
    return ElementTree.fromstring(ordering_svg(Reduction.named(name), schedule, n, what, element, nodes)), n


def of_class(root, class_):
    return [part for part in root.iter() if class_ in part.get("class", "").split()]


def titles(root, class_):
    return [part.find(f"{SVG}title").text for part in of_class(root, class_)]


def placed(part, x=0.0, y=0.0):
    """All elements below one, with the place of the origin of their coordinates."""
    moved = re.fullmatch(r"translate\((\S+) (\S+)\)", part.get("transform", "translate(0 0)"))
    x, y = x + float(moved[1]), y + float(moved[2])
    yield part, x, y
    for child in part:
        yield from placed(child, x, y)


@cache
def extent(string, size):
    """Width of a line of text in a font that is wider than most, in pixels: that of the points which its curves are
    made from, which are never inside of them."""
    return np.ptp(TextPath((0, 0), string, size=size).vertices[:, 0])


def corners(part):
    """Lowest and highest x and y of an element in its own coordinates; None if it has no size."""
    get_ = lambda *names: [float(part.get(name)) for name in names]  # noqa: E731
    if part.tag == f"{SVG}text":
        x, y, size = get_("x", "y", "font-size")
        width, classes = extent(part.text, size), part.get("class").split()
        left = x - (width / 2 if "middle" in classes else width if "end" in classes else 0)
        return left, y - 0.8 * size, left + width, y + 0.25 * size
    if part.tag == f"{SVG}rect":
        x, y, width, height = get_("x", "y", "width", "height") if part.get("x") else (0, 0, 0, 0)
        return x, y, x + width, y + height
    if part.tag == f"{SVG}circle":
        x, y, r = get_("cx", "cy", "r")
        return x - r, y - r, x + r, y + r
    if part.tag == f"{SVG}path":
        xs, ys = [], []
        for letter, numbers in re.findall(r"([MLQVH])([^MLQVHZ]*)", part.get("d")):
            values = [float(v) for v in numbers.split()]
            xs += values if letter == "H" else values[::2] if letter != "V" else []
            ys += values if letter == "V" else values[1::2] if letter != "H" else []
        return min(xs), min(ys), max(xs), max(ys)
    return None


# What is in a picture


@scheduled
@sizes
def test_every_message_is_an_arrow(name, size):
    root, n = drawn(name, size)
    schedule = schedule_of(name, size)
    assert len(of_class(root, "message")) == cost(schedule, n, 8).messages
    sent = Counter(
        (index, rank, t.peer)
        for rank in range(size)
        for index, part in enumerate(schedule.program(rank))
        for t in transfers(part.sends, partial(schedule.bounds, n))
    )
    matches = (
        re.match(r"round (\d+): rank (\d+) to rank (\d+), ", title) for title in titles(root, "message")
    )
    assert Counter(tuple(map(int, match.groups())) for match in matches) == sent


def numbers_of(text, chunks):
    """The chunks that a title names."""
    if "the whole vector" in text:
        return range(chunks)
    match = re.search(r"chunks? (\d+)(?:\u2026(\d+))?", text)
    return range(int(match[1]), int(match[2] or match[1]) + 1)


@scheduled
@sizes
def test_every_sum_is_a_dot(name, size):
    root, n = drawn(name, size)
    schedule = schedule_of(name, size)
    wanted = Counter(
        (index, rank, s.chunk, len(s.sources))
        for rank in range(size)
        for index, part in enumerate(schedule.program(rank))
        for s in part.sums
        if schedule.bounds(n, s.chunk)[0] < schedule.bounds(n, s.chunk)[1]
    )
    dots = Counter()
    for title in titles(root, "sum"):
        index, rank, summands = re.match(r"round (\d+): rank (\d+) (?:adds (\d+) of|copies) ", title).groups()
        for chunk in numbers_of(title, schedule.chunks):
            dots[int(index), int(rank), chunk, int(summands or 1)] += 1
    assert dots == wanted


@scheduled
@sizes
def test_every_rank_is_seen_to_get_the_total_of_every_chunk(name, size):
    root, n = drawn(name, size)
    schedule = schedule_of(name, size)
    got = set()
    for title in titles(root, "message"):
        if title.endswith(", total"):
            receiver = int(re.search(r"to rank (\d+)", title)[1])
            got |= {(receiver, chunk) for chunk in numbers_of(title, schedule.chunks)}
    for title in titles(root, "sum"):
        if title.endswith(", total"):
            maker = int(re.search(r"rank (\d+)", title)[1])
            got |= {(maker, chunk) for chunk in numbers_of(title, schedule.chunks)}
    there = [c for c in range(schedule.chunks) if schedule.bounds(n, c)[0] < schedule.bounds(n, c)[1]]
    assert got >= {(rank, chunk) for rank in range(size) for chunk in there}


@scheduled
@sizes
def test_every_term_and_addition_of_a_tree_is_a_sign(name, size):
    root, n = drawn(name, size, what="tree", element=0)
    schedule = schedule_of(name, size)
    tree = trees(schedule, 0, n)[0]
    written = [part.findall(f"{SVG}text")[0].text for part in of_class(root, "leaf")[: len(leaves(tree))]]
    assert written == [str(leaf) for leaf in leaves(tree)]
    assert len([t for t in titles_if_any(root, "node") if t]) == len(nodes(tree))
    assert len(of_class(root, "edge")) == sum(map(len, nodes(tree)))


def titles_if_any(root, class_):
    elements = (part.find(f"{SVG}title") for part in of_class(root, class_))
    return [title.text for title in elements if title is not None]


@scheduled
@sizes
def test_the_trees_with_their_makers_are_those_of_rank_0(name, size):
    schedule = schedule_of(name, size)
    for chunk, (tree, makers) in enumerate(trees_with_makers(schedule)):
        start, stop = schedule.bounds(1000, chunk)
        assert len(makers) == len(nodes(tree))
        assert start == stop or expression(tree) == expression(trees(schedule, start, 1000)[0])


def test_the_rank_that_makes_an_addition_is_the_one_of_the_schedule():
    assert trees_with_makers(schedule_of("ring", 4))[1] == ((((1, 2), 3), 0), (2, 3, 0))
    assert trees_with_makers(schedule_of("recursive-doubling", 4))[0] == (((0, 1), (2, 3)), (0, 2, 0))
    assert trees_with_makers(schedule_of("direct", 3)) == [(((0, 1), 2), (rank, rank)) for rank in range(3)]


def test_elements_of_one_tree_are_one_picture():
    ring = distinct(schedule_of("ring", 3), 7)
    assert [picture.spans for picture in ring] == [[(0, 3)], [(3, 5)], [(5, 7)]]
    (direct,) = distinct(schedule_of("direct", 3), 7)
    assert direct.spans == [(0, 7)] and direct.makers == [None, None]
    (one,) = distinct(schedule_of("direct", 3), 7, element=6)
    assert one.spans == [(6, 7)] and one.makers == [2, 2]
    assert distinct(schedule_of("ring", 3), 3 * 10**12)[2].spans == [(2 * 10**12, 3 * 10**12)]
    root, _ = drawn("ring", 3, n=7)
    captions = {part.text for part in root.iter(f"{SVG}text")}
    assert {"elements 0\u20262", "elements 5\u20266", "depth 2"} <= captions


def test_of_many_different_trees_some_are_drawn_and_the_others_counted():
    root, _ = drawn("ring", 12, what="tree")
    assert len([t for t in titles_if_any(root, "node")]) == 4 * 11
    assert any(part.text == "Reduction trees; 8 more for other elements: --element" for part in root.iter())


def test_messages_of_one_round_between_two_ranks_bend_apart():
    first = Round(sends=(Message(1, 0, -1), Message(1, 2, -1)))
    second = Round(receives=(Message(0, 0, 1), Message(0, 2, 1)))
    schedule = Schedule(2, 3, lambda rank: ((first,), (second,))[rank])
    root = ElementTree.fromstring(ordering_svg(Reduction("ring"), schedule, 3, "schedule"))
    lines = [part.find(f"{SVG}path").get("d") for part in of_class(root, "message")]
    assert len(lines) == 2 and all("Q" in line for line in lines) and lines[0] != lines[1]


@scheduled
@pytest.mark.parametrize("size", [5, 8])
def test_no_arrow_hides_another(name, size):
    root, _ = drawn(name, size, what="schedule")
    lines = [part.find(f"{SVG}path").get("d") for part in of_class(root, "message")]
    assert len(set(lines)) == len(lines)


def test_chunks_without_elements_are_not_drawn():
    root, _ = drawn("ring", 5, n=2, what="schedule")
    assert len(of_class(root, "message")) == cost(schedule_of("ring", 5), 2, 8).messages == 2 * 2 * 4


def test_several_sums_of_a_rank_in_a_round_are_side_by_side():
    sums = tuple(Sum(chunk, 1, (-1, -2)) for chunk in (0, 2, 4, 6, 7))
    schedule = Schedule(1, 8, lambda rank: (Round(sums=sums),), leaves=lambda rank: (0, 1))
    root = ElementTree.fromstring(ordering_svg(Reduction("ring"), schedule, 8, "schedule"))
    assert [title.split("of ")[1] for title in titles(root, "sum")] == [
        "chunk 0",
        "chunk 2",
        "chunk 4",
        "chunks 6\u20267",
    ]
    dots = [part.find(f"{SVG}circle") for part in of_class(root, "sum")]
    places = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in dots]
    assert all(math.dist(a, b) > 14 for a, b in pairwise(places))


def test_nodes_are_shown():
    root, _ = drawn("ring", 4, what="schedule", nodes=(7, 7, 9, 9))
    assert {"node", "7", "9"} <= {part.text for part in root.iter(f"{SVG}text")}


# How it is drawn


@scheduled
@pytest.mark.parametrize("size", [1, 2, 3, 8, 16, pytest.param(33, marks=pytest.mark.slow)])
def test_nothing_is_outside(name, size):
    root, _ = drawn(name, size, nodes=tuple(range(size)) if size < 9 else None)
    width, height = map(float, root.get("viewBox").split()[2:])
    for part, x, y in placed(root):
        box = corners(part)
        if box:
            assert x + box[0] >= 0 and x + box[2] <= width, (part.tag, part.text, part.attrib)
            assert y + box[1] >= 0 and y + box[3] <= height, (part.tag, part.text, part.attrib)


@scheduled
def test_signs_of_a_tree_do_not_touch(name):
    for size in (8, 16):
        root, _ = drawn(name, size, what="tree", element=0)
        boxes = []
        for part, x, y in placed(root):
            if (
                part.tag in (f"{SVG}circle", f"{SVG}rect")
                and part.get("x") != "0"
                and part.get("class") != "paper"
            ):
                left, top, right, bottom = corners(part)
                boxes.append((x + left, y + top, x + right, y + bottom))
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3], (size, a, b)


def test_it_says_what_it_is():
    root, _ = drawn("ring", 2, n=4)
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == "ring on 2 ranks"
    description = root.find(f"{SVG}desc").text
    assert description == (
        "Promises 'run': same bits on repeats with the same layout. 2 rounds, 4 messages; a vector of 4 elements in "
        "2 chunks; round by round, the busiest rank moves 1 times the vector. elements 0\u20261: (x[0] + x[1]). "
        "elements 2\u20263: (x[1] + x[0])."
    )


def test_hostile_text_is_escaped():
    heading = "<script>alert('&amp;\"]]>')</script>\x00\ufffe\ud800"
    root = ElementTree.fromstring(tree_svg(((0, 1), 2), heading, ["</style><g>"]).encode())
    assert root.find(f"{SVG}title").text == heading.replace("\x00\ufffe\ud800", "\ufffd" * 3)
    assert root.find(f"{SVG}desc").text == "</style><g>"
    assert not [part for part in root.iter() if part.tag.endswith("script")]


def luminance(colour):
    """Of WCAG 2."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_stand_out_on_light_and_dark_and_grow_lighter():
    style = (
        ElementTree.fromstring(svg.page([svg.Piece(1, 1, "")], "", "", {"r": 16})).find(f"{SVG}style").text
    )
    for half in style.split("@media (prefers-color-scheme:dark)"):
        colours = dict(re.findall(r"\.(\w+){fill:(#[0-9a-f]{6})", half))
        light = {name: luminance(colour) for name, colour in colours.items()}

        def contrast(a, b, light=light):
            high, low = sorted((light[a], light[b]), reverse=True)
            return (high + 0.05) / (low + 0.05)

        ranks = [f"r{i}" for i in range(16)]
        assert all(contrast(rank, ground) >= 3 for rank in ranks for ground in ("paper", "band"))
        assert all(contrast(word, ground) >= 4.5 for word in ("ink", "soft") for ground in ("paper", "band"))
        assert all(light[a] < light[b] for a, b in pairwise(ranks))


def test_the_same_command_writes_the_same_bytes():
    command = [sys.executable, "-m", "kernels.allreduce", "draw", "recursive-doubling", "-n", "5", "-o", "-"]
    outputs = {
        subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1 and outputs.pop().startswith(b"<svg ")


# Trees by themselves


def test_any_tree_can_be_drawn_and_deep_ones_too():
    deep = 0
    for i in range(1, 128):
        deep = (deep, i)
    root = ElementTree.fromstring(tree_svg(deep, "one after the other"))
    assert len(of_class(root, "edge")) == 2 * 127
    with pytest.raises(ChoiceError, match=r"129 terms are too many.*at most 128"):
        tree_svg((deep, 128), "one more")
    several = ElementTree.fromstring(tree_svg((0, (1, 2, 3)), "three at once"))
    assert len(of_class(several, "edge")) == 5


# The command


def test_a_picture_is_written_where_it_is_asked_for(capsys, tmp_path, monkeypatch):
    assert main(["draw", "ring", "-n", "3", "-o", "-"]) == 0
    text = capsys.readouterr().out
    assert main(["draw", "ring", "-n", "3", "-o", str(tmp_path / "mine.svg")]) == 0
    assert (tmp_path / "mine.svg").read_text() == text
    assert capsys.readouterr().out == f"{tmp_path / 'mine.svg'}\n"
    monkeypatch.chdir(tmp_path)
    assert main(["draw", "arrival", "-n", "3", "--order", "0,2,1", "--what", "tree"]) == 0
    assert "arrival on 3 ranks" in Path("arrival-3.svg").read_text()


@pytest.mark.parametrize(
    "line, message",
    [
        (
            "draw arrival",
            "'arrival' has no fixed tree.*These have one: .*ring.*; arrival has one when --order",
        ),
        ("draw library", "'library' has no fixed tree"),
        ("draw arrival", "'arrival' has no fixed tree"),
        ("draw ring -n 65", "65 ranks are too many for a picture: at most 64"),
        (
            "draw linear -n 129 --what tree",
            "129 terms are too many.*at most 128. `tree` and `cost` take more",
        ),
        ("draw segmented-ring:segments=64 -n 16", "30720 messages are too many.*at most 20000"),
        ("draw ring --length 0", "--length 0: there is nothing to draw; choose 1 or more"),
        ("draw ring -n 4 --element 4", "--element 4: there is none in a vector of 4; choose 0 ... 3"),
        ("draw ring -o no/such/place.svg", "-o no/such/place.svg: cannot be written: No such file"),
    ],
)
def test_mistakes_are_answered_with_what_is_allowed(capsys, line, message):
    assert main(line.split()) == 2
    output = capsys.readouterr()
    assert re.search(message, output.err) and not output.out


# The documentation


def test_the_documentation_shows_what_the_commands_print_and_draw():
    text = PAGE.read_text()
    page, pictures = renewed(text)
    assert page == text, "run: python -m tests.transcripts"
    assert {str(path.relative_to(ROOT)) for path in PICTURES.iterdir()} == set(pictures)
    for place, picture in pictures.items():
        assert (ROOT / place).read_bytes() == picture.encode(), f"{place}: run: python -m tests.transcripts"
        assert f"](../{Path(place).relative_to('docs')})" in text


def test_the_documentation_says_what_the_bits_of_every_ordering_depend_on():
    _, _, rest = PAGE.read_text().partition("| ordering | bits depend on | cost |\n")
    rows = re.findall(r"^\| `(\S+)` \| [^|]+ \| [^|]+ \|$", rest.partition("\n\n")[0], re.MULTILINE)
    assert rows == [o.name for o in orderings()]
