"""The text of what `identify` found: tables, and the sentence that sums them up."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from kernels.allreduce.instruments.bitwise import Timed
from kernels.allreduce.instruments.candidates import OverNodes, members, short_name
from kernels.allreduce.instruments.dependence import Dependence
from kernels.allreduce.instruments.forced import Forced
from kernels.allreduce.instruments.recognition import Finding

WIDTH = 84  # of the last column, in characters
SHOWN = 6  # printed trees of a length, and printed pairs of orderings inside and across nodes


def report(findings: Sequence[Finding], forces: Sequence[Forced], nodes: Sequence[int]) -> str:
    """The table of findings, with further lines under each length. `nodes`: the node of each rank."""
    lines = [f"{'length':>10}  {'repeats':<8}{'ranks':<8}bits of"]
    listed: dict[tuple[str, ...], int] = {}  # the length at which a list of orderings was printed
    for f in findings:
        if f.length == 0:
            lines.append(f"{0:>10}  {'-':<8}{'-':<8}nothing: there is nothing to add")
            continue
        repeats, agree = "yes" if f.repeats else "NO", "agree" if f.ranks_agree else "DIFFER"
        first, *rest = names = _class_text(f, nodes)
        if rest and listed.setdefault(tuple(names), f.length) != f.length:
            first, rest = f"as length {listed[tuple(names)]}", []
        lines.append(f"{f.length:>10}  {repeats:<8}{agree:<8}{first}")
        rest += [line for what in forces for line in _verdict(f, what, len(nodes))]
        for each in f.trees[:SHOWN]:
            where = _ranges_text(each.elements, f.length) + ("" if f.ranks_agree else ", rank 0")
            doubt = " (but random sums differ)" if "x[" in each.tree and not each.verified else ""
            texts = [] if f.recognised else _texts(each.orderings, each.over_nodes, nodes)
            rest += [line for text in texts for line in _wrapped(f"{where}: {text}")]
            rest.append(f"{where}: {each.tree}{doubt}")
        more = len(f.trees[SHOWN:]) + f.more_trees
        if more:
            rest.append(f"and {more} more orders, of other elements")
        lines += [f"{'':<28}{line}" for line in rest]
    return "\n".join(lines)


def conclusion(findings: Sequence[Finding], nodes: Sequence[int]) -> str:
    """A sentence that sums up the table, with advice how to learn more."""
    nonempty = [f for f in findings if f.length]
    if not nonempty:
        return "Nothing was added, so nothing is known of the order: give a --length above 0."
    if not all(f.repeats for f in nonempty):
        return "The library adds in no fixed order: the sums of the same numbers differ from call to call."
    if not all(f.ranks_agree for f in nonempty):
        return "Each rank of the library adds in another order: ranks hold different bits."
    if len(nodes) == 2:
        return "The library's bits repeat; two ranks have only one possible sum: start 5 or 6 to learn the order."
    parts = []
    for name, lengths in named(nonempty).items():
        span = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
        plural = "" if lengths == [1] else "s"
        parts.append(f"{name or 'an order without a name here (--tree shows it)'} for {span} element{plural}")
    text = f"The library adds in a fixed order on {len(nodes)} ranks: {', '.join(parts)}."
    alike = max(len(f.orderings) for f in nonempty)
    more = " Start 5 or 6 ranks to distinguish more of them." if len(nodes) < 5 else ""
    return text + (
        f" Up to {alike} orderings have these bits here, and the first is named.{more}" if alike > 1 else ""
    )


def named(findings: Sequence[Finding]) -> dict[str, list[int]]:
    """{ordering: lengths}: for each length, the ordering that has its bits. Of several, the one that has the bits of
    the most lengths. The name is empty for an unknown order."""
    orderings = {
        f.length: f.orderings or ["inside and across nodes" if f.over_nodes else ""]
        for f in findings
        if f.length
    }
    names: dict[str, list[int]] = {}
    for length, alike in orderings.items():
        most = max(alike, key=lambda name: sum(name in others for others in orderings.values()))
        names.setdefault(most, []).append(length)
    return names


def dependence_table(found: Sequence[Dependence]) -> str:
    """A row for each condition, a column for each length: how many sums have other bits after it changed."""
    if not found:
        return ""
    lengths = sorted({each.length for each in found})
    conditions = dict.fromkeys(each.on for each in sorted(found, key=lambda each: -each.length))
    cells = {(each.on, each.length): _cell(each) for each in found}
    rows = [[on, *(cells.get((on, n), "-") for n in lengths)] for on in conditions]
    return table(["bits change with", *(f"length {n}" for n in lengths)], rows) + (
        "\nno / N: none of N sums has other bits; YES, with the part of all sums that have"
    )


def _cell(each: Dependence) -> str:
    if each.differ:
        return f"YES {100 * each.differ / each.compared:.2g} %"
    return f"no / {each.compared:,}"


def time_table(times: Sequence[Timed]) -> str:
    """Time and bandwidth of a length beside the number of different results of its calls."""
    rows = [
        [f"{t.length:,}", f"{t.nbytes:,}", f"{t.seconds * 1e6:,.1f}", f"{t.algbw / 1e9:.3g}", f"{t.busbw / 1e9:.3g}",
         f"{t.distinct} of {t.calls:,} calls"]
        for t in times
    ]  # fmt: skip
    return (
        table(["length", "bytes", "time us", "algbw GB/s", "busbw GB/s", "different results"], rows)
        if rows
        else ""
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of texts, the first to the left and the others to the right."""
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        )
        for row in (heads, *rows)
    )


def _class_text(f: Finding, nodes: Sequence[int]) -> list[str]:
    if not f.repeats:
        return ["no ordering: the sums of the same numbers differ from call to call"]
    if not f.recognised:
        parts = (
            len(f.trees) > 1 and not f.more_trees and all(one.orderings or one.over_nodes for one in f.trees)
        )
        return ["one ordering for some elements, another for others"] if parts else ["no known ordering"]
    texts = _texts(f.orderings, f.over_nodes, nodes)
    if not f.ranks_agree:
        return _wrapped(f"no ordering: each rank adds in another order, rank 0 in that of {texts[0]}")
    if len(nodes) == 2:
        return ["any ordering: two ranks have only one possible sum"]
    return [line for i, text in enumerate(texts) for line in _wrapped(f"{'or ' if i else ''}{text}")]


def _texts(orderings: Sequence[str], over_nodes: Sequence[OverNodes], nodes: Sequence[int]) -> list[str]:
    """A line for all matching orderings, then one for each pair of orderings inside and across nodes."""
    texts = [_same(orderings)] if orderings else []
    texts += [_over_nodes_text(both, nodes) for both in over_nodes[:SHOWN]]
    if more := len(over_nodes[SHOWN:]):
        texts.append(f"{more} more pairs of orderings inside and across nodes")
    return texts


def _same(names: Sequence[str]) -> str:
    return " = ".join(names)


def _over_nodes_text(both: OverNodes, nodes: Sequence[int]) -> str:
    groups = members(nodes)
    inside, across = (
        "any ordering" if ranks <= 2 else _same(names)
        for ranks, names in ((max(map(len, groups)), both.inside), (len(groups), both.across))
    )
    return f"inside nodes {inside}; across nodes {across}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _verdict(f: Finding, what: Forced, size: int) -> list[str]:
    if size == 2 or what.ordering is None:
        return []
    if f.as_forced(what):
        return [f"as forced: {short_name(what.ordering)}"]
    if f.across_as_forced(what):
        return [f"as forced across nodes: {short_name(what.ordering)}"]
    return [f"NOT AS FORCED, {short_name(what.ordering)}: the library ran something else without saying so"]


def _ranges_text(ranges: list[tuple[int, int]], n: int) -> str:
    if ranges == [(0, n - 1)]:
        return "all elements" if n > 1 else "element 0"
    texts = [f"{first} ... {last}" if first < last else str(first) for first, last in ranges]
    if len(texts) == 1 and ranges[0][0] == ranges[0][1]:
        return f"element {texts[0]}"
    return "elements " + ", ".join(texts[:3]) + (f", {len(texts) - 3} more ranges" if len(texts) > 3 else "")
