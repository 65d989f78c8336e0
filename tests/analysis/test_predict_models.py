"""Costs of work and messages: fits to known costs, and the message where a measurement is missing."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.errors import Unreachable
from analysis.predict.costs.collectives import Collectives, Link, bus, zones
from analysis.predict.costs.kernel_times import KernelTimes, inside_hull
from analysis.predict.costs.segments import segment_costs
from analysis.predict.reading.calibration import Calibration
from analysis.predict.reading.skeleton import Skeleton, shares_of
from analysis.predict.simulation.communication import between_ranks
from miniapps.layout.blocks import Blocks
from miniapps.layout.halo import CORNERS, FACES, Strips, transfers_of

KEY = ("sum", "halo", "work", False)
ALPHA, BETA, GAMMA = 2e-6, 1e-9, 5e-10


def run_of(work, ns, size=1):
    """A run of so much work whose segment KEY takes so many ns each time."""
    segments = pd.DataFrame(
        {"wait": range(len(ns)), "inside": False, "step": 1, "key": [KEY] * len(ns), "ns": ns}
    )
    return Skeleton("", {}, size, np.array([1]), work, 0, pd.DataFrame(), [], segments, 0.0, 0.0, "")


def test_two_shares_of_the_work_tell_what_does_not_shrink():
    whole, half = run_of(8.0, [900.0, 1100.0]), run_of(4.0, [600.0])
    cost = segment_costs([whole, half], whole, 0.0)[KEY]
    assert (cost.fixed, cost.per_work) == (pytest.approx(2e-7), pytest.approx(1e-7))
    assert cost.seconds(np.array([2.0]))[0] == pytest.approx(4e-7)
    assert cost.residuals.mean() == pytest.approx(1.0)


def test_of_one_share_the_fixed_part_is_the_calibrations():
    cost = segment_costs([run_of(8.0, [1000.0])], run_of(8.0, [1000.0]), 3e-7)[KEY]
    assert (cost.fixed, cost.per_work * 8) == (pytest.approx(3e-7), pytest.approx(7e-7))
    assert segment_costs([run_of(8.0, [100.0])], run_of(8.0, [100.0]), 3e-7)[KEY].per_work == 0.0


def test_a_run_keeps_its_own_rate():
    """The other run was made when the machine was three times as fast; cost without a negative part is proportional."""
    whole, half = run_of(8.0, [1200.0]), run_of(4.0, [200.0])
    cost = segment_costs([whole, half], whole, 0.0)[KEY]
    assert cost.seconds(np.array([8.0, 4.0])).tolist() == pytest.approx([1.2e-6, 6e-7])


def test_ranks_have_contiguous_runs_of_blocks():
    assert (shares_of(10, 4) * 10).tolist() == pytest.approx([3, 3, 2, 2])
    assert shares_of(0, 4).tolist() == [0.25] * 4


def kernel(shapes):
    """flops, bytes and seconds of a product whose rate rises with its depth and falls for few columns."""
    m, k, n = np.asarray(shapes, float).T
    flops = 2 * m * k * n
    rate = 2e10 * k / (k + 30) * n / (n + 10)
    return flops, 4 * (m * k + k * n + m * n), 2e-6 + flops / rate


def test_products_of_other_shapes_are_near_those_measured():
    shapes = np.rint(2.0 ** np.random.default_rng(0).uniform(3, 9, (120, 3)))
    known, new = shapes[:80], shapes[80:]
    times = KernelTimes(known, *kernel(known))
    flops, nbytes, seconds = kernel(new)
    predicted, _, outside = times.seconds(new, flops, nbytes)
    inside = ~outside
    assert inside.sum() >= 20
    assert np.exp(np.abs(np.log(predicted / seconds))[inside].mean()) < 1.03


def test_the_stated_errors_hold_as_often_as_a_normal_distribution_says():
    """Times with steps and noise of 5 %, as caches and clocks make them."""
    rng = np.random.default_rng(3)
    shapes = np.rint(2.0 ** rng.uniform(3, 9, (400, 3)))
    flops, nbytes, seconds = kernel(shapes)
    seconds = seconds * np.where(shapes[:, 1] > 100, 1.3, 1.0) * np.exp(0.05 * rng.standard_normal(400))
    known, new = slice(0, 60), slice(60, None)
    times = KernelTimes(shapes[known], flops[known], nbytes[known], seconds[known])
    predicted, errors, outside = times.seconds(shapes[new], flops[new], nbytes[new])
    off = (np.abs(np.log(predicted / seconds[new])) / errors)[~outside]
    assert 0.7 < np.mean(off < 1.2816) < 0.95  # 80 % of a normal distribution
    assert errors.min() > 0.03


def test_a_measured_shape_left_out_is_as_the_others_predict_it():
    shapes = np.rint(2.0 ** np.random.default_rng(2).uniform(3, 9, (24, 3)))
    flops, nbytes, seconds = kernel(shapes)
    seconds[5] *= 3.0  # which only this shape takes
    times = KernelTimes(shapes, flops, nbytes, seconds)
    left_out, errors = times.left_out
    assert left_out[5] < 0.6 * seconds[5]
    others = np.arange(24) != 5
    fitted = KernelTimes(shapes[others], flops[others], nbytes[others], seconds[others])
    assert left_out[5] == pytest.approx(fitted.seconds(shapes[5:6], flops[5:6], nbytes[5:6])[0][0], rel=0.5)
    assert (errors > times.seconds(shapes, flops, nbytes)[1]).all()  # with itself a shape is known better


def test_a_shape_outside_of_all_measured_is_said_to_be_and_takes_the_sum_alone():
    """Of shapes whose times are a sum exactly, the process has nothing to add, however far the shape lies."""
    shapes = np.rint(2.0 ** np.random.default_rng(1).uniform(3, 6, (20, 3)))
    flops, nbytes, _ = kernel(shapes)
    seconds = 2e-6 + flops / 2e10 + nbytes / 1e10
    predicted, _, outside = KernelTimes(shapes, flops, nbytes, seconds).seconds(
        [[4096, 4096, 4096]], [1e12], [1e6]
    )
    assert outside.tolist() == [True]
    assert predicted[0] == pytest.approx(2e-6 + 50.0 + 1e-4, rel=0.01)


def test_two_shapes_are_too_few():
    with pytest.raises(ValueError, match="2 shapes"):
        KernelTimes([[8, 8], [16, 8]], [1, 2], [1, 2], [1, 2])


def test_the_hull_of_points():
    square = np.array([[0, 0], [0, 2], [2, 0], [2, 2]], float)
    assert inside_hull(square, np.array([1.9, 0.1]))
    assert not inside_hull(square, np.array([2.1, 1.0]))


def counts(n, size):
    return {"messages": size - 1, "bytes": 8.0 * n * (size - 1), "additions": n * (size - 1.0)}


@pytest.fixture
def calibration():
    """On two ranks, of a network whose costs are ALPHA, BETA and GAMMA; alone a rank takes 1 us."""
    rows, reductions = [], {}
    for label, accumulation, factor in (
        ("direct", "working", 1),
        ("ring", "working", 2),
        ("library", "working", 1),
    ):
        for n in (1, 16, 256, 4096):
            own = {key: factor * value for key, value in counts(n, 2).items()}
            extra = ALPHA * own["messages"] + BETA * own["bytes"] + GAMMA * own["additions"]
            others = {f"{key}:4": factor * value for key, value in counts(n, 4).items()}
            region = f"allreduce.{label}:{n}:together"
            rows.append(
                {"region": region, "seconds": 1e-6 + extra, "length": n, "ranks": 2, "flops": 0}
                | own
                | others
            )
            rows.append(
                {"region": region.replace("together", "alone"), "seconds": 1e-6, "length": n, "ranks": 1}
            )
            reductions[region] = {"region": region, "ordering": label, "accumulation": accumulation}
    rows += [
        {"region": "exchange", "seconds": 3e-6 + 1e-9 * nbytes, "bytes": nbytes, "partners": 1}
        for nbytes in (8, 8192)
    ]
    return Calibration(
        "cal", 2, pd.DataFrame(rows), np.ones((10, 2)), np.zeros(1), 1.0, reductions, {}, ("0" * 64,)
    )


def test_a_measured_ordering_is_interpolated_in_its_length(calibration):
    prices = Collectives(calibration)
    assert prices.allreduce("direct", 256, 8, 2) == pytest.approx(ALPHA + 256 * (8 * BETA + GAMMA))
    assert prices.allreduce("direct", 512, 4, 2) == prices.allreduce("direct", 256, 8, 2)  # as many bytes
    between = ALPHA + 1000 * (8 * BETA + GAMMA)  # latency and bytes, far between 256 and 4096, too
    assert prices.allreduce("direct", 1000, 8, 2) == pytest.approx(between)
    assert prices.allreduce("direct", 256, 8, 1) == 0.0
    assert not prices.extrapolated


def test_other_rank_counts_follow_from_the_schedule_and_are_marked(calibration):
    prices = Collectives(calibration)
    c = counts(256, 4)
    expected = ALPHA * 2 * c["messages"] + BETA * 2 * c["bytes"] + GAMMA * 2 * c["additions"]
    assert prices.allreduce("ring", 256, 8, 4) == pytest.approx(expected, rel=1e-6)
    assert list(prices.extrapolated) == ["all-reduces on 4 ranks, measured on 2"]


def test_what_ranks_do_for_messages_takes_turns_and_what_links_carry_does_not(calibration):
    cases = calibration.cases.copy()
    cases["crossing_messages"], cases["crossing_bytes"] = 0.0, 7.0 * cases["bytes"]
    cases["crossing_messages:4"], cases["crossing_bytes:4"] = 0.0, 7.0 * cases["bytes:4"]
    cases["bytes"] = cases["bytes:4"] = cases["additions"] = cases["additions:4"] = 0.0  # all bytes cross
    nodes = replace(calibration, cases=cases)
    alone, shared = (Collectives(nodes, turns=turns).allreduce("ring", 256, 8, 4) for turns in (1.0, 0.5))
    c = counts(256, 4)
    carried = (BETA + GAMMA / 8) * 2 * c["bytes"]
    assert alone == pytest.approx(ALPHA * 2 * c["messages"] + carried, rel=1e-6)
    assert shared == pytest.approx(2.0 * (alone - carried) + carried, rel=1e-6)


def test_an_ordering_that_was_not_measured_is_taken_for_another_and_marked(calibration):
    prices = Collectives(calibration)
    assert prices.allreduce("two-level", 1, 8, 2) == prices.allreduce("direct", 1, 8, 2)
    assert list(prices.extrapolated) == ["two-level, priced as direct"]


def test_several_contributions_of_a_rank_have_prices_of_their_own(calibration):
    """Where one travels as it is, several travel as words of twice the bytes."""
    own = calibration.cases[calibration.cases["region"].str.startswith("allreduce.direct")]
    several = own.assign(region="x" + own["region"], contributions=2.0, seconds=2.0 * own["seconds"])
    several["region"] = several["region"].str.replace("xallreduce.direct", "allreduce.direct:several")
    cases = pd.concat([calibration.cases.assign(contributions=1.0), several], ignore_index=True)
    more = {name.replace("direct", "direct:several"): facts | {"region": name.replace("direct", "direct:several")}
            for name, facts in calibration.reductions.items() if "direct" in name}  # fmt: skip
    prices = Collectives(replace(calibration, cases=cases, reductions={**calibration.reductions, **more}))
    one, two, five = (prices.allreduce("direct", 256, 8, 2, k) for k in (1, 2, 5))
    assert two == five == pytest.approx(2.0 * one)
    assert prices.allreduce("ring", 256, 8, 2, 2) == prices.allreduce("ring", 256, 8, 2)  # has but one case


def test_groups_of_ranks_have_their_own_times_by_how_many_share_a_node(calibration):
    own = calibration.cases[calibration.cases["region"].str.startswith("allreduce.direct")]
    own = own[own["ranks"] == 2]
    cases, facts = [calibration.cases.assign(near=calibration.cases["ranks"])], dict(calibration.reductions)
    for near, factor in ((1, 5.0), (2, 3.0)):
        group = own.assign(near=near, seconds=1e-6 + factor * (own["seconds"] - 1e-6))
        group["region"] = group["region"].str.replace("together", f"among 2, {near} near")
        cases.append(group)
        facts |= {name: calibration.reductions[name.replace(f"among 2, {near} near", "together")] | {"region": name}
                  for name in group["region"]}  # fmt: skip
    whole = cases[0]["ranks"] == 2
    cases[0] = cases[0].assign(
        ranks=cases[0]["ranks"].where(~whole, 4), near=cases[0]["near"].where(~whole, 4)
    )
    prices = Collectives(
        replace(calibration, size=4, cases=pd.concat(cases, ignore_index=True), reductions=facts)
    )
    all_ranks = ALPHA + 256 * (8 * BETA + GAMMA)
    assert prices.allreduce("direct", 256, 8, 4) == pytest.approx(all_ranks)
    assert prices.allreduce("direct", 256, 8, 2) == pytest.approx(3 * all_ranks)
    assert prices.allreduce("direct", 256, 8, 2, near=1) == pytest.approx(5 * all_ranks)
    assert prices.local("direct", 256, 8) == pytest.approx(1e-6)
    assert prices.timed(2) and not prices.timed(3) and not prices.extrapolated


def test_without_all_reduces_there_is_no_price(calibration):
    none = Calibration("", 2, calibration.cases[:0], np.ones((1, 2)), np.zeros(1), 1.0, {}, {}, ())
    with pytest.raises(Unreachable, match="has no time of messages; calibrate again without --what"):
        Collectives(none).allreduce("direct", 1, 8, 2)


def test_exchanges_take_a_latency_for_every_partner_and_their_bytes(calibration):
    times = Collectives(calibration).exchange([0, 8192, 16384, 8], [0, 1, 1, 3])
    assert times.tolist() == pytest.approx([0, 1.1192e-5, 2.2384e-5, 3.008e-6 * 3])


def test_a_link_of_the_user_takes_the_place_of_the_network(calibration):
    prices = Collectives(calibration, Link(1e-3, 1e6))
    assert prices.allreduce("ring", 256, 8, 2) == pytest.approx(2e-3 + 2 * 8 * 256 / 1e6)
    assert prices.exchange([1000], [1]).tolist() == pytest.approx([1e-3 + 1e-3])


def test_three_zones_of_the_library():
    """10 us up to some kilobytes, then 1 GB/s."""
    nbytes = 2.0 ** np.arange(3, 25)
    fitted = zones(nbytes, np.maximum(1e-5, nbytes / 1e9))
    assert fitted.seconds(np.array([8, 64, 2**24])) == pytest.approx([1e-5, 1e-5, 2**24 / 1e9], rel=0.1)
    assert bus("allreduce", 4) == 1.5
    assert bus("allgather", 4) == 0.75


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("directions", [FACES, FACES + CORNERS])
def test_what_passes_between_blocks_says_what_passes_between_ranks(size, directions):
    """Against the plan that the ranks themselves make."""
    width = 2
    traffic = np.zeros((size, size))
    for rank in range(size):
        blocks = Blocks(24, 32, 6, 8, size, rank)
        strips = Strips(blocks, width, width)
        for peer, transfers in transfers_of(blocks, directions)[1].items():
            traffic[rank, peer] = 8 * sum(np.prod(strips.extent(direction)) for _, direction, _ in transfers)
    plan = {"rows": 4, "columns": 4, "bytes": [[*d, 8 * int(np.prod(strips.extent(d)))] for d in directions]}
    assert between_ranks(plan, blocks.owner, size).tolist() == traffic.tolist()
