"""Drawn campaigns: every verdict is true of what the runs recorded, whatever that was."""

import itertools
import os
import random
import re

import pytest

from analysis.clauses import clause
from analysis.divergence.cause import cause
from analysis.divergence.compare import NothingInCommon, compare
from analysis.groups import grouped
from analysis.headline import AS_RECORDED, headline, headline_of
from analysis.load.frames import load
from analysis.runs import ids
from analysis.sentences import NO_RESULTS, sentence
from analysis.verdict import BROKEN, DIFFERS, HOLDS, INCOMPARABLE, SAME, UNTESTED, judge
from tests.analysis.campaigns import comparable, differ, draw, final, must_differ, shared, some

EQUAL = (HOLDS, SAME)


def pool(place, app, count, seed):
    """{run: what was written}, and their frames."""
    rng = random.Random(f"{app} {seed}")
    made = rng.random() < 0.5, rng.random() < 0.5, rng.random() < 0.8
    written = {f"r{i:03d}": draw(rng, app, place / f"r{i:03d}", made) for i in range(count)}
    return written, load([place], processes=1)


def check_pair(frames, written, one, other):
    """What `divergence` says of two runs."""
    a, b = written[one], written[other]
    if not {one, other} <= set(frames.runs["run"]):  # one recorded nothing at all
        return
    try:
        found = compare(frames, (one, 0), (other, 0))
    except NothingInCommon:
        assert not comparable(a, b), (one, other)
        return
    said = sentence(found)
    assert found.differs == (" differ: first at " in said)
    if found.differs:
        assert differ(a, b), said
    elif must_differ(a, b):
        pytest.fail(f"differ: {said}")
    if not found.comparable:
        assert (a.lost or b.lost or not (shared(a, b) or final(a, b) is not None)) or a.app == "calls", said
    elif not found.differs:
        assert found.compared or found.ended
        assert (NO_RESULTS in said) == (
            not any(key[0] in ("u", "energy") for key in shared(a, b)) and final(a, b) is None
        )
    early = not (a.complete and b.complete)
    over = headline_of([found], [cause(frames, found)], frames, (), early)
    assert (over.code == 3) == found.differs
    assert bool(over.refused) == (not found.differs and (not found.comparable or early))
    if "gave the same result" in over.text:
        assert NO_RESULTS not in said and not must_differ(a, b)


def check_campaign(frames, written):
    """What `report` and `variability` say of runs."""
    groups = judge(frames)
    members = {name: own for name, own in grouped(frames.runs).groupby("group", sort=False)}
    said = headline(groups, frames)
    for group in groups:
        own = members[group.label]
        runs = {run: written[run] for run, _ in ids(own[own["complete"]])}
        text, cells = clause(group), own[own["complete"]].groupby("cell")["run"].agg(list)
        within = [pair for cell in cells for pair in itertools.combinations([runs[run] for run in cell], 2)]
        across = list(itertools.combinations(runs.values(), 2))
        if any(must_differ(*pair) for pair in within):
            assert group.verdict in (DIFFERS, BROKEN), text
        elif group.verdict == BROKEN:
            pytest.fail(text)
        elif group.verdict == DIFFERS:
            assert any(differ(*pair) for pair in across), text
        if group.verdict in EQUAL:
            on = group.over
            assert 2 <= on.compared <= on.runs == len(runs), text
            assert not any(must_differ(*pair) for pair in (across if group.spanned else within)), text
            equal = [pair for pair in (across if group.spanned else within) if comparable(*pair)]
            results = [
                final(*pair) is not None or any(key[0] in ("u", "energy") for key in shared(*pair))
                for pair in equal
            ]
            assert (NO_RESULTS in text) == (not on.results)
            if results and all(results):
                assert on.results, text
            if not any(results):
                assert not on.results, text
        if group.verdict == UNTESTED:
            assert not any(comparable(*pair) for pair in within), text
            assert "the same bits" not in text
        if group.verdict == INCOMPARABLE:
            assert any(a.lost or b.lost for a, b in within) or group.label.startswith("calls"), text
    verdicts = [group.verdict for group in groups]
    if said.badge.startswith("IDENTICAL"):
        assert set(verdicts) <= {*EQUAL, UNTESTED}
        assert (
            (said.badge == AS_RECORDED) == (NO_RESULTS in said.text) == ("the same result" not in said.text)
        )
        count = sum(group.over.compared for group in groups if group.verdict in EQUAL)
        assert int(re.match(r"\d+", said.text)[0]) == count
    elif said.verdict == UNTESTED:
        assert set(verdicts) == {UNTESTED}
    return said.verdict


def check(place, app, runs, campaigns, seed):
    """{verdict: how many campaigns had it} of drawn campaigns of a pool of `runs`."""
    written, frames = pool(place, app, runs, seed)
    rng, counts = random.Random(seed), {}
    for _ in range(campaigns):
        names = rng.sample(sorted(written), rng.choice([1, 2, 2, 3, 3, 4, 6]))
        here = some(frames, names)
        verdict = check_campaign(here, written)
        counts[verdict] = counts.get(verdict, 0) + 1
        for other in names[1:2]:
            check_pair(here, written, names[0], other)
    return counts


@pytest.mark.parametrize("app, kinds", [("own", 5), ("calls", 3)])
def test_no_drawn_verdict_is_false(tmp_path, app, kinds):
    assert len(check(tmp_path, app, 24, 30, seed=1)) >= kinds


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 10 + int(os.environ.get("FPNA_DRAWN_CAMPAIGNS", "1000")) // 500))
@pytest.mark.parametrize("app", ["own", "calls"])
def test_no_verdict_of_many_drawn_campaigns_is_false(tmp_path, app, seed):
    """A thousand of them; FPNA_DRAWN_CAMPAIGNS=10000 draws ten thousand, for half an hour."""
    check(tmp_path, app, 60, 250, seed)
