"""The comparison of whole cells at once agrees with pairwise comparisons."""

import random

import numpy as np
import pandas as pd
import pytest

from analysis.divergence.among import among
from analysis.divergence.compare import NothingInCommon, compare
from analysis.divergence.kinds import kinds, telling
from analysis.divergence.steps import growth, growths
from analysis.ends import final, outcomes
from analysis.load.frames import load
from analysis.pairs import ALL, METRICS, NEXT, metrics_of, of_each_other
from analysis.runs import ids
from kernels import bits
from tests.analysis.campaigns import draw


def one_by_one(frames, kind):
    """The run that differs earliest from the first of a kind and the first that is equal, as they should be said."""
    found = []
    for other in kind[1:]:
        try:
            found.append(compare(frames, kind[0], other))
        except NothingInCommon:
            return None
    assert all(each.comparable for each in found) and len({each.compared for each in found}) == 1
    differing = [each for each in found if each.differs]
    equal = [each.b for each in found if not each.differs][:1]
    return [*([min(differing, key=lambda each: each.when).b] if differing else []), *equal]


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("app", ["own", "calls"])
def test_a_kind_is_told_by_its_earliest_difference_and_an_equal_run(tmp_path, app, seed):
    rng = random.Random(f"kinds {app} {seed}")
    made = rng.random() < 0.5, rng.random() < 0.5, True
    for i in range(30):
        draw(rng, app, tmp_path / f"r{i:03d}", made)
    frames = load([tmp_path], processes=1)
    several = [kind for kind in kinds(frames, ids(frames.runs)) if len(kind) > 1]
    assert several
    for kind in several:
        expected = one_by_one(frames, kind)
        if expected is None:
            assert not among(frames, kind).comparisons
            continue
        assert telling(frames, kind) == expected
        assert [each.b for each in among(frames, kind).comparisons] == expected
        assert among(frames, kind).compared == kind
        first, *others = kind
        frame = pd.concat(
            [growth(frames, first, run).assign(run=run[0], repeat=run[1]) for run in others],
            ignore_index=True,
        )
        pd.testing.assert_frame_equal(growths(frames, first, others), frame)


@pytest.mark.parametrize("runs", [2, 7, ALL, ALL + 1, ALL + 6])
def test_each_run_is_compared_with_as_many_others(runs):
    i, j = of_each_other(runs)
    assert (i < j).all() and len({*zip(i.tolist(), j.tolist(), strict=True)}) == len(i)
    assert (np.bincount(np.concatenate([i, j])) == min(runs - 1, 2 * NEXT)).all()
    assert (np.lexsort((j, i)) == np.arange(len(i))).all()


@pytest.mark.parametrize("odd", [(), (0.0, -0.0), (np.nan,), (np.inf, -np.inf)])
@pytest.mark.parametrize("elements", [1, 9])
def test_metrics_of_pairs_are_those_of_each_pair(elements, odd):
    rng = np.random.default_rng([elements, len(odd)])
    x = rng.choice(np.array([*rng.normal(size=5), -1.5, 1e308, -1e308, 5e-324, *odd]), (12, elements))
    i, j = np.triu_indices(12, 1)
    found = metrics_of("values", x[:, :, None].view(np.uint64), i, j)
    for k, (a, b) in enumerate(zip(x[i], x[j], strict=True)):
        distance = bits.ulp_distance(a, b)
        mean, undefined = bits.v_ermv(a, b)
        v_s = bits.v_s(a, b)[0] if elements == 1 else np.nan
        expected = (
            bits.differ(a, b).mean(),
            v_s,
            mean,
            bits.largest(distance),
            bits.mean(distance),
            undefined,
        )
        assert [repr(found[key][k].item()) for key in METRICS] == [
            repr(np.asarray(y).item()) for y in expected
        ]


def test_outcomes_are_counted_by_the_bits_at_the_end(tmp_path):
    rng = random.Random("ends")
    for i in range(20):
        draw(rng, "own", tmp_path / f"r{i:03d}")
    frames = load([tmp_path], processes=1)
    for kind in kinds(frames, ids(frames.runs)):
        for name in ("u", "energy"):
            table = "fingerprints" if name == "u" else "values"
            if name not in frames.names or (last := final(frames, table, name, kind)) is None:
                continue
            step, outcome, words = last
            assert len({row.tobytes() for row in words}) == len(words)
            for run, place in zip(kind, outcome, strict=True):
                own = frames.of(table, *run)
                own = own[(own["name"] == name) & (own["step"] == step)].sort_values(["occurrence", "block"])
                payload = ["hi", "lo"] if name == "u" else ["value"]
                columns = [own[key].to_numpy().view(np.uint64) for key in payload]
                assert (np.stack(columns, axis=1) == words[place]).all()
        members = frames.runs[[run in kind for run in ids(frames.runs)]]
        assert (outcomes(frames, members) or [0])[0] == 0
