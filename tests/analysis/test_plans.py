"""Prices of plans: works, waits and replays by hand, calibrations that lack something, machines of files."""

import json
from dataclasses import replace
from itertools import product

import msgspec
import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.errors import Unreachable
from analysis.predict.costs.kernel_times import KernelTimes
from analysis.predict.costs.machines import Tiles, machine_of, read_machine
from analysis.predict.plans.devices import allreduce, divided
from analysis.predict.plans.kernels import FEWEST, KERNEL, WorkTimes, readable
from analysis.predict.plans.price import Prices, kernels_of, prediction_of
from analysis.predict.plans.steps import partners_in
from miniapps.untrusted import Refused
from miniapps.untrusted.program import Ranks, Segment, Wait, Work, read_program, to_json
from tests.analysis.plan_runs import DEVICE, REST, elements, product_of, program, written
from tests.analysis.predict_programs import calibrated


def measured(works, rest=((1, 1, 1, 1, 1e-6),), **more):
    """A calibration that measured the works {work: seconds}, and steps with counts and seconds between calls."""
    rows = [
        {"region": str(work.key) + "@" + "x".join(map(str, work.dims)), "seconds": seconds, "flops": work.flops,
         "nbytes": float(work.nbytes), "spread": 0.0}
        for work, seconds in works.items()
    ]  # fmt: skip
    rows += [
        {"region": "rest@" + "x".join(str(n + 1) for n in counts), "seconds": s, "flops": 0, "nbytes": 0.0,
         "spread": 0.0}
        for *counts, s in rest
    ]  # fmt: skip
    known = calibrated()
    cases = [known.cases.assign(nbytes=0.0), pd.DataFrame(rows)]
    return replace(known, cases=pd.concat(cases, ignore_index=True), **more)


@pytest.fixture
def known():
    """Times of eight products, which follow fixed + operations / rate, and of two sums."""
    times = {product_of(n): 1e-6 + 2 * n**3 / 50e9 for n in (8, 16, 24, 32, 48, 64, 96, 128)}
    return measured(times | {elements(1000): 2e-6, elements(4000): 5e-6})


def test_a_measured_size_has_its_time_and_another_one_that_of_the_model(known):
    seconds, errors, marks = WorkTimes(known).seconds([product_of(32), product_of(40), product_of(500)])
    assert not errors[0].any() and errors[1, 0] < errors[2, 0]  # common to all sizes
    assert 0 < errors[1, 1] == errors[2, 1]  # of each size alone
    assert seconds[0] == 1e-6 + 2 * 32**3 / 50e9
    assert seconds[1] == pytest.approx(1e-6 + 2 * 40**3 / 50e9, rel=0.02)
    assert marks == ["sizes of mm, torch, float32"]
    assert WorkTimes(known).seconds([product_of(40)])[-1] == []


def test_a_hidden_size_has_the_time_that_the_others_say(known):
    product, sums = product_of(32), elements(4000)
    slow = measured({product: 1.0, sums: 5.0} | {product_of(n): 1e-6 + 2 * n**3 / 50e9 for n in (8, 16, 24, 48, 64, 96)}
                    | {elements(1000): 2e-5})  # fmt: skip
    seconds, errors, _ = WorkTimes(slow).without({product, sums}).seconds([product, sums])
    assert seconds[0] < 0.1 and errors[0].all()
    assert seconds[1] == pytest.approx(7.4e-5)  # 2 us, and four times what the only other size takes beyond
    alone = measured({product: 1.0})
    assert WorkTimes(alone).without({product}).seconds([product])[0] == 1.0  # of which nothing else is known


def test_few_sizes_scale_the_nearest_one_and_are_marked(known):
    assert FEWEST > 2
    seconds, errors, marks = WorkTimes(known).seconds([elements(8000)])
    assert 0.1 < errors[0, 0] < 1.0 and errors[0, 1] == 0  # the two sizes do not scale into each other
    assert 5e-6 < seconds[0] <= 10e-6
    assert marks == [f"other sizes than the few (below {FEWEST}) of add, torch, float32"]


def test_a_kernel_that_was_not_measured_is_named_with_what_to_measure(known):
    other = Work("kernel conv.output own float32 by 5", (1, 2, 3, 4, 5), 1, 1)
    with pytest.raises(Unreachable, match=r"no time of conv.output, own, float32; calibrate with the plans"):
        Prices([known]).of(program([other], [((0, 1),)]))
    with pytest.raises(Unreachable, match="no calibration has times of kernels as plans call them"):
        Prices([measured({}, rest=())]).of(program())


@pytest.mark.parametrize(
    "wait",
    [
        Wait("sum before x", "reduction", ("data",), "library", 1000, 4),
        Wait("sum before x", "reduction", ("data",), "ring", 1000, 4),
        Wait("exchange before x", "exchange", ("data",), nbytes=8, offsets=((1,),)),
    ],
)
def test_a_calibration_of_kernels_alone_says_that_it_lacks_messages(known, wait):
    cases = known.cases[known.cases["region"].str.contains("@", regex=False)].dropna(
        axis="columns", how="all"
    )
    alone = replace(known, cases=cases, size=2, delays=np.zeros(1))
    with pytest.raises(Unreachable, match="has no time of messages; calibrate again without --what"):
        Prices([alone]).of(program(calls=((), ()), waits=(wait,), size=2))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (
            "_scaled_dot_product_flash_attention_for_cpu own float32' float32' float32' causal by 4",
            "attention, own, float32 strided, causal",
        ),
        ("native_layer_norm_backward torch float32 float32 by 2", "layer norm, backward, torch, float32"),
        ("_log_softmax_backward_data torch float32 float32 by 2", "log softmax, backward, torch, float32"),
        ("embedding_dense_backward own float32 int64 by 3", "embedding, backward, own, float32, int64"),
        ("mm torch float32 float32' by 3", "mm, torch, float32, float32 strided"),
        ("mm torch bfloat16' bfloat16 by 3", "mm, torch, bfloat16 strided, bfloat16"),
        ("where torch bool float32 float32 by 1", "where, torch, bool, float32"),
        (
            "permute torch float32 (0, 2, 1, 3) of 4 dims by 1",
            "permute, torch, float32, dims 0, 2, 1, 3 of 4",
        ),
        ("sum own float32 (0,) True of 2 dims blocks by 3", "sum, own, float32, dims 0 of 2 blocks"),
        (
            "conv.output own float32 float32 stride (2, 2) dilation (1, 1) groups 1 direct by 5",
            "conv.output, own, float32, stride (2, 2)",
        ),
        (
            "conv.weight torch float32 float32 stride (1, 1) dilation (2, 2) groups 4 transposed by 5",
            "conv.weight, torch, float32, dilation (2, 2) groups 4 transposed",
        ),
        ("Adam by 2", "Adam"),
        ("exchange by 1", "exchange"),
        ("traced events by 1", "traced events"),
        ("", KERNEL),
    ],
)
def test_kernels_have_names_that_people_read(key, words):
    assert readable(KERNEL + key) == words


def test_the_table_of_kernels_adds_up_those_of_one_name_and_files_keep_the_keys(tmp_path, capsys):
    works = [
        Work(f"{KERNEL}add torch float32 float32 by {n}", dims, 0, 4000)
        for n, dims in ((1, (1000,)), (2, (1000, 10)))
    ]
    plan, machine = tmp_path / "plan.json", tmp_path / "one.toml"
    plan.write_bytes(to_json(program([*works, product_of(32)], [((0, 3), (1, 2), (2, 1))])))
    machine.write_text(written(DEVICE))
    assert main(["price", str(plan), "--machine", str(machine)]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "add, torch, float32" in line]
    assert row.split("float32")[1].split()[:1] == ["5"]
    assert main(["price", str(plan), "--machine", str(machine), "--json"]) == 0
    told = {row["kernel"] for row in json.loads(capsys.readouterr().out)["tables"]["kernels"]}
    assert told == {work.key.removeprefix(KERNEL) for work in (*works, product_of(32))}


def test_the_rest_follows_calls_views_copies_and_bytes():
    rows = [
        (10, 0, 0, 0, 1e-6),
        (0, 10, 0, 0, 2e-6),
        (0, 0, 10, 0, 3e-6),
        (0, 0, 0, 1000, 1e-6),
        (5, 5, 5, 0, 3e-6),
    ]
    times = WorkTimes(measured({}, rest=rows))
    assert times.rest(np.array([[20, 0, 0, 0], [0, 0, 1, 500]])) == pytest.approx([2e-6, 0.8e-6], rel=0.01)


def test_a_step_takes_its_parts(known):
    quiet = replace(known, noise=np.zeros((0, 1)), delays=np.zeros(1))
    found = Prices([quiet]).of(program([product_of(32), elements(1000)], [((0, 3), (1, 2))]), clock="wall")
    seconds = 3 * (1e-6 + 2 * 32**3 / 50e9) + 2 * 2e-6
    assert found.compute.tolist() == pytest.approx([seconds])
    assert np.median(found.samples) == pytest.approx(seconds, rel=0.02)
    assert found.memory.tolist() == [60]
    assert [row[:3] for row in kernels_of(found)] == [
        ("mm torch float32 float32 by 3", "32x32x32", 3.0), ("add torch float32 float32 by 1", "1000", 2.0),
    ]  # fmt: skip


def test_the_interval_has_the_errors_of_the_kernels_models(known):
    """Those of one kernel are off together, and equally in every program."""
    quiet = replace(known, noise=np.zeros((0, 1)), delays=np.zeros(1))
    prices = Prices([quiet])

    def spread(*works):
        one = program(works, [tuple((k, 1) for k in range(len(works)))])
        return np.log(prices.of(one, replays=1000, clock="wall").samples)

    exact, scaled = spread(elements(1000)), spread(elements(8000))
    assert exact.std() < 0.03  # the machine's rate
    assert scaled.std() > 3 * exact.std()
    assert spread(elements(8000), elements(8001)).std() == pytest.approx(scaled.std(), rel=0.1)
    mixed = spread(product_of(64), elements(8000))
    assert np.corrcoef(mixed, scaled)[0, 1] > 0.5


def test_ranks_wait_for_the_slowest_and_messages_cost(known):
    quiet = replace(known, noise=np.zeros((0, 2)), delays=np.zeros(1))
    wait = Wait("sum before x", "reduction", ("data",), "ring", 1000, 8)
    fast, slow = (
        Ranks((rank,), (Segment(((0, calls),), REST), Segment((), REST)), (wait,), (0, 0, 0))
        for rank, calls in ((0, 1), (1, 5))
    )
    both = program([elements(1000)], size=2, classes=(fast, slow), mesh={"data": 2})
    found = Prices([quiet]).of(both, clock="wall")
    assert (found.communication > 0).all()
    assert found.waiting.tolist() == pytest.approx([4 * 2e-6, 0.0], abs=1e-9)


def test_messages_of_a_pipeline_are_posted_by_one_stage_and_ended_by_the_other(known):
    quiet = replace(known, noise=np.zeros((0, 2)), delays=np.zeros(1))
    empty, work = Segment((), REST), Segment(((0, 1),), REST)
    names = ["message 0 of stages", "message 1 of stages"]
    sends = tuple(Wait(name, "send", ("stage",), nbytes=8, offsets=((1,),)) for name in names)
    # The other stage takes them in the other order: no rank waits for itself.
    receives = tuple(
        Wait(name, "receive", ("stage",), nbytes=8, offsets=((-1,),)) for name in reversed(names)
    )
    first = Ranks((0,), (work, work, empty), sends, (0, 0, 0))
    second = Ranks((1,), (empty, empty, work), receives, (0, 0, 0))
    found = Prices([quiet]).of(
        program([elements(1000)], size=2, classes=(first, second), mesh={"stage": 2}), clock="wall"
    )
    assert found.compute.tolist() == pytest.approx([4e-6, 2e-6])
    assert np.median(found.samples) >= 6e-6
    assert found.waiting[1] == pytest.approx(4e-6, rel=0.01)


def early(first, second, **more):
    """A program of two ranks in which a sum begins before `second` calls of a kernel, after `first` of it."""
    about = ("sum before x", "reduction", ("data",), "ring", 1000, 8)
    waits = (Wait(*about, part="start"), Wait(*about, part="finish"))
    calls = [((0, first),), ((0, second),), ()]
    return program([elements(1000)], calls, waits, size=2, mesh={"data": 2}, **more)


def beside(known, share, label="ring"):
    """The calibration, with the `share` of messages that pass while ranks work."""
    times = {"messages": 1e-4, "work": 2e-4, "both": 3e-4 - share * 1e-4}
    rows = [
        {"region": f"beside {what} {label}", "seconds": s, "length": 1000.0, "flops": 0, "nbytes": 0.0}
        for what, s in times.items()
    ]
    cases = pd.concat([known.cases, pd.DataFrame(rows)], ignore_index=True)
    return replace(known, cases=cases, noise=np.zeros((0, 2)), delays=np.zeros(1))


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_messages_pass_while_ranks_work_as_far_as_the_calibration_says(known, share):
    prices = Prices([beside(known, share)])
    alone = prices.of(early(3, 0), clock="wall")
    whole = alone.communication[0]
    assert whole > 0 and alone.overlapped.tolist() == [0.0, 0.0]
    often = int(2 * whole / 2e-6)  # calls of 2 us that take longer than the messages
    found = prices.of(early(3, often), clock="wall")
    assert found.communication.tolist() == pytest.approx([(1 - share) * whole] * 2)
    assert found.overlapped.tolist() == pytest.approx([share * whole] * 2)
    assert found.waiting.tolist() == [0.0, 0.0]
    few = prices.of(early(3, often // 8), clock="wall")  # an eighth of twice the messages' time
    assert few.overlapped[0] == pytest.approx(min(share * whole, often // 8 * 2e-6))
    assert few.communication[0] + few.overlapped[0] == pytest.approx(whole)


def test_without_such_a_calibration_no_message_is_hidden_and_the_price_says_so(known):
    found = Prices([replace(known, noise=np.zeros((0, 2)), delays=np.zeros(1))]).of(early(3, 1000))
    assert found.overlapped.tolist() == [0.0, 0.0]
    assert "messages beside work, of which none is priced as hidden: not calibrated" in found.extrapolated


def test_several_messages_beside_work_pass_one_after_the_other(known):
    about = [(f"sum before {name}", "reduction", ("data",), "ring", 1000, 8) for name in "ab"]
    starts, ends = ([Wait(*each, part=part) for each in about] for part in ("start", "finish"))
    calls = [((0, 1),), (), (), (), ()]
    both = program([elements(1000)], calls, [*starts, *ends], size=2, mesh={"data": 2})
    prices = Prices([beside(known, 1.0)])
    one = prices.of(early(1, 0), clock="wall")
    found = prices.of(both, clock="wall")
    own = one.compute[0] - 2e-6  # what a rank does alone for the second, while the first passes
    assert found.communication.tolist() == pytest.approx([2 * one.communication[0] - own] * 2)
    assert found.overlapped.tolist() == pytest.approx([own] * 2)


def test_a_message_for_which_ranks_wait_delays_those_beside_work(known):
    about = ("sum before a", "reduction", ("data",), "ring", 1000, 8)
    waited = Wait("sum before b", "reduction", ("data",), "ring", 1000, 8)
    waits = [Wait(*about, part="start"), waited, Wait(*about, part="finish")]
    prices = Prices([beside(known, 1.0)])
    one = prices.of(early(1, 0), clock="wall")
    found = prices.of(program(calls=[()] * 4, waits=waits, size=2, mesh={"data": 2}), clock="wall")
    own = one.compute[0] - 2e-6
    assert found.communication.tolist() == pytest.approx([2 * one.communication[0] - own] * 2)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("finish",), "ends and has not begun"),
        (("start",), "begins and does not end"),
        (("start", "start"), "two waits of one name"),
        (("finish", "start"), "ends and has not begun"),
    ],
)
def test_a_wait_that_begins_early_ends_once(parts, message):
    waits = [Wait("sum before x", "reduction", ("data",), "ring", 1, 8, part=part) for part in parts]
    with pytest.raises(ValueError, match=message):
        program(calls=[()] * (len(waits) + 1), waits=waits, size=2, mesh={"data": 2})


def scattered(known):
    """The calibration, with a reduce-scatter that takes 30 us more than its ranks do alone."""
    rows = [
        {"region": f"reduce-scatter.direct:{where}", "seconds": s, "length": 1.0, "ranks": p, "flops": 0,
         "messages": p - 1, "bytes": 8.0 * (p - 1), "additions": p - 1.0}
        for where, s, p in (("together", 4e-5, 2), ("alone", 1e-5, 1))
    ]  # fmt: skip
    about = {"region": "reduce-scatter.direct:together", "ordering": "direct", "collective": "reduce-scatter"}
    cases = pd.concat([known.cases, pd.DataFrame(rows)], ignore_index=True)
    return replace(known, cases=cases, reductions=dict(known.reductions) | {"scattered direct": about})


def test_a_reduce_scatter_has_its_own_time_if_it_was_measured(known):
    known = replace(known, noise=np.zeros((0, 2)), delays=np.zeros(1))
    wait = Wait("sum before x", "reduction", ("data",), "direct", 1, 8, scatters=True)
    step = program(calls=((), ()), waits=[wait], size=2, mesh={"data": 2})
    found = Prices([scattered(known)]).of(step)
    assert found.communication.tolist() == pytest.approx([3e-5] * 2)
    assert not found.extrapolated
    without = Prices([known]).of(step)
    assert without.extrapolated == ("reduce-scatters, which were not calibrated",)


def test_a_wire_that_was_not_measured_is_refused_with_what_to_measure(known):
    wait = Wait("sum before x", "reduction", ("data",), "direct in exact over fp8", 1000, 4)
    with pytest.raises(Unreachable, match=r"no time of direct in exact over fp8; calibrate .* wire=fp8"):
        Prices([known]).of(program(calls=((), ()), waits=[wait], size=2, mesh={"data": 2}))


def test_the_hash_of_a_prediction_covers_all_calibrations(known):
    others = [known, replace(known, hashes=("2" * 64,))]
    step = program([product_of(32)], [((0, 1),)], app="mesh", problem="p", method="m")
    one, both, turned = (prediction_of(Prices(each).of(step)) for each in (others[:1], others, others[::-1]))
    assert one.calibration == known.hash and one.traces == ()
    assert both.calibration == turned.calibration not in {each.hash for each in others}
    assert both.traces == tuple(each.hash for each in others)


def test_ranks_that_wait_in_a_circle_are_refused(known):
    one, two = (Wait(name, "exchange", ("data",), nbytes=8, offsets=((1,),)) for name in "ab")
    empty = (Segment((), REST),) * 3
    classes = Ranks((0,), empty, (one, two), (0, 0, 0)), Ranks((1,), empty, (two, one), (0, 0, 0))
    with pytest.raises(Unreachable, match="wait for each other in a circle"):
        Prices([known]).of(program(size=2, classes=classes, mesh={"data": 2}))


def test_partners_are_the_ranks_that_differ_along_the_axes():
    wait = Wait("sum before x", "reduction", ("b",), "ring", 1, 8)
    cube = program(calls=((), ()), waits=(wait,), size=12, mesh={"a": 2, "b": 3, "c": 2})
    found = partners_in(cube, wait.name)
    for a, b, c in product(range(2), range(3), range(2)):
        assert set(found[a * 6 + b * 2 + c]) == {a * 6 + other * 2 + c for other in range(3)}
    whole = Wait("sum before x", "reduction", ("a", "b", "c"), "ring", 1, 8)
    assert partners_in(program(calls=((), ()), waits=(whole,), size=12, mesh=cube.mesh), whole.name) is None
    ring = Wait("exchange before x", "exchange", ("b",), nbytes=8, offsets=((0, 1, 0), (0, -1, 0)))
    found = partners_in(program(calls=((), ()), waits=(ring,), size=12, mesh=cube.mesh), ring.name)
    assert set(found[0]) == {0, 2, 4}


def test_a_device_takes_the_longer_of_operations_and_bytes():
    machine = machine_of(DEVICE, "one")
    works = [Work("kernel mm", (1,), 10**7, 100), Work("kernel add", (1,), 0, 4 * 10**4)]
    found = Prices([], machine).of(program(works, [((0, 1), (1, 2))]))
    assert found.compute.tolist() == pytest.approx([1e-6 + 2e-5 + 2 * (1e-6 + 2e-5)])
    assert np.ptp(found.samples) == 0
    assert found.extrapolated == ("all kernels, from a machine file", "all messages, from a machine file")


def test_products_in_tiles_take_whole_tiles_and_whole_rounds_of_all_processors():
    tiles = Tiles(processors=108, rows=256, columns=128)

    def longer(*dims, name="mm torch float32 float32 by 3"):
        return divided(Work(f"{KERNEL}{name}", dims, 1, 1), tiles)

    assert longer(27 * 256, 4096, 4 * 128) == 1.0  # 108 tiles
    assert longer(1792, 64, 1792) == pytest.approx(108 * 256 * 128 / 1792**2)  # 7 x 14 tiles of 108
    assert longer(2304, 4096, 1792) == pytest.approx(
        2 * 108 / 126
    )  # one row of tiles more: 9 x 14, two rounds
    assert longer(108 * 128, 64, 256) == 1.0  # tiles the other way round
    assert longer(4, 108 * 256, 64, 128, name="bmm torch float32 float32 by 4") == 1.0
    assert longer(1, 64, 1) == 108 * 256 * 128
    assert longer(10, 10, name="add torch float32 by 2") == 1.0
    assert divided(Work(f"{KERNEL}mm torch", (10, 10, 10), 1, 1), None) == 1.0
    machine = machine_of(DEVICE | {"tiles": {"processors": 4, "rows": 8, "columns": 8}}, "one")
    work = Work(f"{KERNEL}mm torch", (8, 1000, 8), 2 * 64 * 1000, 0)
    plain = Prices([], machine_of(DEVICE, "one")).of(program([work], [((0, 1),)])).compute[0] - 1e-6
    assert Prices([], machine).of(program([work], [((0, 1),)])).compute[0] == pytest.approx(1e-6 + 4 * plain)


def test_a_plan_that_no_device_can_hold_has_no_price():
    machine = machine_of(DEVICE | {"device": DEVICE["device"] | {"capacity": 40}}, "one")
    with pytest.raises(Unreachable, match="rank 0 needs 5e-08 GB, and a device has 4e-08 GB; use more ranks"):
        Prices([], machine).of(program())


def test_a_lossy_wire_of_devices_has_fewer_bytes_and_calls_that_encode():
    machine = machine_of(DEVICE, "one")

    def price(label, nbytes=0):
        wait = Wait("sum before x", "reduction", ("data",), label, 10**6, 4, nbytes=nbytes)
        return Prices([], machine).of(program(calls=((), ()), waits=[wait], size=4))

    plain, wired = price("direct"), price("direct over fp8", 10**6)
    inside, between = allreduce(machine.device.inside, 2, 10**6), allreduce(machine.link, 2, 10**6 / 2)
    assert wired.communication.tolist() == pytest.approx([inside + between] * 4)
    assert plain.communication[0] > 1.9 * wired.communication[0]  # numbers of the device have two bytes
    assert wired.compute[0] == pytest.approx(4e-6 + 3 * 2e6 / 1e9) and plain.compute[0] == 0


def test_an_all_reduce_over_nodes_has_both_links():
    machine = machine_of(DEVICE, "one")
    waits = [Wait("sum before x", "reduction", ("data",), "library", 1000, 4)]
    found = Prices([], machine).of(program(calls=((), ()), waits=waits, size=4))
    inside, between = allreduce(machine.device.inside, 2, 2000), allreduce(machine.link, 2, 1000)
    assert found.communication.tolist() == pytest.approx([inside + between] * 4)
    assert allreduce(machine.link, 2, 0) == pytest.approx(2e-5)


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("device", {"product": -1}, "device.product = -1; give a positive number"),
        ("device", {"product": None}, r"\[device\] has no product"),
        ("device", {"achieved": 1.5}, "give a share of at most 1"),
        ("device", {"speed": 3}, "unknown speed; there are: product"),
        ("device", {"memory": "fast"}, "device.memory = 'fast'; give a positive number"),
        ("device", {"memory": float("inf")}, "give a positive number"),
        ("node", {"devices": 2.5}, "node.devices = 2.5; give a whole number"),
        ("tiles", {"processors": 4, "rows": 8}, r"\[tiles\] has no columns \(of a tile\)"),
        ("tiles", {"processors": 4, "rows": 8.5, "columns": 8}, "tiles.rows = 8.5; give a whole number"),
        ("tiles", {"processors": 0, "rows": 8, "columns": 8}, "tiles.processors = 0; give a positive number"),
        ("tiles", {"depth": 1}, "unknown depth; there are: processors"),
        ("node", None, r"\[node\] is missing"),
        ("sources", {"product": 3}, "give a text for each number"),
    ],
)
def test_machine_files_with_missing_or_absurd_numbers_are_refused(table, change, message):
    content = json.loads(json.dumps(DEVICE))
    if change is None:
        del content[table]
    else:
        content[table] = {k: v for k, v in (content.get(table, {}) | change).items() if v is not None}
    with pytest.raises(Refused, match=message):
        machine_of(content, "one")


def test_a_machine_of_devices_needs_links_and_a_file_must_be_toml(tmp_path):
    with pytest.raises(Refused, match="latency and bandwidth between its nodes"):
        machine_of(
            {key: value for key, value in DEVICE.items() if key not in ("latency", "bandwidth")}, "one"
        )
    (tmp_path / "x.toml").write_text("product 3")
    with pytest.raises(Refused, match="write it as TOML"):
        read_machine(tmp_path / "x.toml")


def test_programs_are_read_back_and_damaged_ones_refused(tmp_path):
    wait = Wait("sum before x", "reduction", ("data",), "ring", 1000, 8)
    good = program([elements(10)], (((0, 1),), ()), (wait,), size=2)
    path = tmp_path / "plan.json"
    path.write_bytes(to_json(good))
    assert read_program(path) == good
    document = msgspec.json.decode(to_json(good))
    one = document["classes"][0]
    for change, message in [
        ({"classes": [one | {"ranks": [0]}]}, "do not have each of 2 ranks once"),
        ({"classes": [one | {"segments": one["segments"][:1]}]}, "1 segments around 1 waits"),
        ({"classes": [one | {"segments": [{"calls": [[7, 1]], "rest": [0, 0, 0, 0]}, *one["segments"][1:]]}]},
         "a work that is not listed"),
        ({"mesh": {"model": 2}}, "an axis that the mesh lacks"),
        ({"mesh": {"data": 2**40}}, "Expected `int` <="),
        ({"format": "another"}, "Invalid enum value"),
    ]:  # fmt: skip
        path.write_bytes(msgspec.json.encode(document | change))
        with pytest.raises(Refused, match=message):
            read_program(path)


def test_the_command_prices_compares_and_appends(tmp_path, capsys):
    machine = tmp_path / "one.toml"
    machine.write_text(written(DEVICE))
    other = tmp_path / "other.toml"
    other.write_text("name = 'other'\nlatency = 1e-5\nbandwidth = 1e8")
    files = []
    for number, calls in enumerate((4, 1)):
        files.append(tmp_path / f"{number}.json")
        known = {"app": "mesh", "problem": "p", "method": "m"}
        files[-1].write_bytes(
            to_json(program([elements(1000)], [((0, calls),)], title=f"plan {number}", **known))
        )
    ledger = tmp_path / "ledger.jsonl"
    argv = ["price", *map(str, files), "--machine", str(machine), "--ledger", str(ledger), "--json"]
    assert main(argv) == 0
    answer = json.loads(capsys.readouterr().out)
    plans = answer["tables"]["plans"]
    assert [row["title"] for row in plans] == ["plan 1", "plan 0"]
    assert [row["told"] for row in plans] == [False, False]  # a machine file has no known error
    assert all(row["p10_s"] is row["p90_s"] is None and row["p50_s"] > 0 for row in plans)
    assert "fastest of 2 plans: plan 1" in answer["sentences"][0]
    assert "without a known error; 1 other cannot be told from it" in answer["sentences"][0]
    assert any("does not say how far off" in note for note in answer["notes"])
    assert len(ledger.read_text().splitlines()) == 2
    for wrong, message in [
        (["price", str(files[0])], "--calibration DIR is missing"),
        (["price", str(machine), "--machine", str(machine)], "write a plan by fpna partition explain"),
        (["price", str(tmp_path / "none.json"), "--machine", str(machine)], "No such file"),
        (
            ["price", str(files[0]), "--machine", str(machine), "--machine", str(other)],
            "--machine: give one",
        ),
    ]:
        assert main(wrong) == 2
        assert message in capsys.readouterr().err


def test_a_plan_of_no_application_is_in_no_ledger(known):
    with pytest.raises(Unreachable, match="belongs to no run"):
        prediction_of(Prices([known]).of(program([elements(1000)], [((0, 1),)])))


def test_products_whose_dims_fill_whole_vectors_are_not_priced_as_their_neighbours():
    """Where a kernel pads dims to 16 elements, 64 columns take as long as 49, and 65 as long as 80."""

    def seconds(*dims):
        return 1e-10 * np.prod([16 * -(-n // 16) for n in dims])

    shapes = [
        (rows, depth, 17 + 11 * k) for k, (rows, depth) in enumerate(product((32, 100, 300), (20, 60, 200)))
    ]
    wanted = [(90, 50, columns) for columns in (49, 64, 65, 80)]
    flops = [[2 * a * b * c for a, b, c in each] for each in (shapes, wanted)]
    model = KernelTimes(shapes, flops[0], [1] * len(shapes), [seconds(*shape) for shape in shapes], "mm")
    found, *_ = model.seconds(wanted, flops[1], [1] * len(wanted))
    assert found == pytest.approx([seconds(*shape) for shape in wanted], rel=0.05)
