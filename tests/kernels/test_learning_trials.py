"""Policies that try wires, on synthetic curves: their tasks, their steps back, their regret against the best wire."""

import numpy as np
import pytest

from benchmarks.harness.regret import regret
from kernels.learning.adaprec import AdaPrec
from kernels.learning.cautious import LONGER, MORE, TIMES, Cautious
from kernels.learning.trials import SHARE, START, Task

FLOOR, RATE, BUDGET = 0.35, 0.05, 12.0
# Seconds of a step, part of the gradient that arrives, noise that keeps the loss up; `bad` makes it grow.
SLOW = {
    "float32": (0.020, 1.0, 0.0),
    "fp8": (0.006, 0.99, 0.0005),
    "sign": (0.0030, 0.6, 0.01),
    "bad": (0.003, -1.0, 0.5),
}
FAST = {
    "float32": (0.0024, 1.0, 0.0),
    "fp8": (0.0022, 0.9, 0.005),
    "sign": (0.0021, 0.5, 0.02),
    "bad": (0.002, -1.0, 0.5),
}


class World:
    """Losses that fall towards FLOOR by the sum of learning rates, at the speed of a wire; a clock that only training
    moves. A state is (loss, sum of rates)."""

    def __init__(self, wires, noise=0.0, seed=1):
        self.wires, self.noise, self.rng = wires, noise, np.random.default_rng(seed)
        self.clock = 0.0

    def train(self, state, wire, seconds, steps=0, points=4):
        """(state, seconds, sums of rates, losses) of so many seconds or steps."""
        (loss, rates), (each, part, more) = state, self.wires[wire]
        count = max(1, round(seconds / each))
        count = min(count, steps) if steps else count
        marks = set(np.linspace(0, count, points + 1).round().astype(int).tolist())
        losses, places = [], []
        for k in range(count):
            rate = RATE * max(0.0, 1 - self.clock / BUDGET) ** 2
            loss = min(loss + rate * (more - 2 * part * (loss - FLOOR)), 50.0)
            rates += rate
            self.clock += each
            if k + 1 in marks:
                losses.append(loss + self.noise * self.rng.standard_normal())
                places.append(rates)
        return (loss, rates), count * each, places, losses


def fixed(wires, wire):
    """The loss at the end of the budget."""
    (loss, _), *_ = World(wires).train((2.3, 0.0), wire, BUDGET)
    return loss


def drive(policy, world):
    """(the loss at the end, all tasks) of a run by the policy."""
    kept, tasks = {START: (2.3, 0.0)}, []
    while (task := policy.task()) is not None:
        assert policy.task() == task  # the same until it is done
        tasks.append(task)
        kept[task.end], *measured = world.train(kept[task.begin], task.wire, task.seconds, task.steps)
        policy.done(*measured)
    return kept[policy.state][0], tasks


@pytest.mark.parametrize("wires", [SLOW, FAST], ids=["slow links", "fast links"])
def test_little_is_lost_against_the_best_fixed_wire(wires):
    losses = {wire: fixed(wires, wire) for wire in wires}
    reached = [drive(Cautious(tuple(wires), BUDGET), World(wires, 0.001, seed))[0] for seed in range(3)]
    lost = regret({wire: [-loss] * 3 for wire, loss in losses.items()}, [-loss for loss in reached])
    assert lost.best != "bad" and losses["bad"] > 1
    assert lost.mean < 0.03, (losses, reached)


def test_speculation_takes_the_share_of_time_that_was_given():
    policy = Cautious(("float32", "fp8", "sign"), BUDGET)
    _, tasks = drive(policy, World(SLOW))
    assert policy.spent == pytest.approx(BUDGET, rel=0.02)
    assert policy.tried / policy.spent == pytest.approx(3 * SHARE, abs=0.03)
    assert sum(task.trial for task in tasks) == 3 * 12 and len(policy.decisions) in (12, 13)


def test_trials_are_longer_where_measuring_takes_long_and_all_of_it_counts_as_time():
    """Each task is measured in 0.3 s, and each decision takes 0.05 s."""
    policy, world, kept = Cautious(("float32", "fp8", "sign"), 60.0), World(SLOW), {START: (2.3, 0.0)}
    policy.started(0.3, 0.0, 2.3)
    tasks = []
    while (task := policy.task()) is not None:
        policy.paused(0.05)
        tasks.append(task)
        kept[task.end], seconds, at, losses = world.train(kept[task.begin], task.wire, task.seconds - 0.3)
        policy.done(seconds + 0.3, at, losses, 0.3)
    trials = [task for task in tasks if task.trial]
    assert {round(task.seconds, 6) for task in trials} == {LONGER * 0.3}
    assert policy.length == pytest.approx(LONGER * 0.3 / SHARE)  # three segments in place of twelve
    assert len(trials) == 3 * 3 or len(trials) == 2 * 3
    assert policy.spent + 0.01 >= 60.0 and policy.spent <= 60.0 + 1.0


def test_a_score_is_per_second_of_training():
    policy = Cautious(("a", "b"), 12.0)
    for seconds, measuring in ((0.2, 0.1), (0.1, 0.02)):
        assert policy.task().trial
        policy.done(seconds, [0.1, 0.2], [1.0, 0.8], measuring)
    policy.task()
    scores = policy.decisions[0].scores
    assert scores["a"] == pytest.approx(0.2 / 0.1) and scores["b"] == pytest.approx(0.2 / 0.08)


def test_a_first_measurement_comes_before_the_first_task():
    policy = Cautious(("a", "b"), 12.0)
    with pytest.raises(ValueError, match="clock that runs"):
        policy.started(0.0, 0.0, 1.0)
    policy.task()
    with pytest.raises(ValueError, match="first task"):
        policy.started(0.1, 0.0, 1.0)


def test_trials_of_a_segment_begin_in_one_state_and_the_chosen_one_goes_on():
    _, tasks = drive(Cautious(("float32", "fp8"), BUDGET), World(SLOW))
    begin = START
    for first, second, rest in zip(tasks[::3], tasks[1::3], tasks[2::3], strict=False):
        assert (first.begin, second.begin, first.trial, second.trial, rest.trial) == (
            begin,
            begin,
            True,
            True,
            False,
        )
        assert {first.wire, second.wire} == {"float32", "fp8"}
        assert rest.begin == f"trial {rest.wire}" and rest.end != begin
        begin = rest.end


def report(policy, task, losses, rates=None, seconds=None):
    policy.done(seconds or task.seconds, np.linspace(0, 1, len(losses)) if rates is None else rates, losses)


def decide(policy, by_wire):
    """One segment in which trials report these losses, and the run goes on as it was: what ran."""
    while (task := policy.task()).trial:
        report(policy, task, by_wire[task.wire], seconds=0.05)
    return task


def test_the_wire_that_gains_most_per_second_is_chosen():
    policy = Cautious(("a", "b", "c"), 12.0)
    assert decide(policy, {"a": [1.0, 0.9], "b": [1.0, 0.7], "c": [1.0, 0.8]}).wire == "b"
    (decision,) = policy.decisions
    assert (decision.segment, decision.wire, list(decision.scores)) == (0, "b", ["a", "b", "c"])
    assert decision.scores["b"] == pytest.approx(
        0.3 / 0.05
    )  # two points have no curve: the gain over the trial


def test_equal_scores_take_the_first_wire():
    same = [1.0, 0.9, 0.8]
    assert decide(Cautious(("b", "a"), 12.0), {"a": same, "b": same}).wire == "b"


def test_doubt_counts_against_a_wire():
    """Both fall to about the same value, one of them by leaps."""
    trials = {
        "leaping": [2.0, 1.5, 1.94, 1.3, 1.6, 1.1, 1.5, 1.18],
        "steady": [2.0, 1.8, 1.64, 1.51, 1.41, 1.33, 1.26, 1.21],
    }
    policy = Cautious(tuple(trials), 12.0)
    assert decide(policy, trials).wire == "steady"
    (decision,) = policy.decisions
    segment = 1.0
    sure = {wire: (2.0 - decision.expected[wire]) / segment for wire in trials}
    lost = {wire: sure[wire] - decision.scores[wire] for wire in trials}
    assert lost["leaping"] > 5 * abs(lost["steady"])


def test_a_run_that_gets_worse_goes_back_and_its_wire_is_banned_twice_as_long_each_time():
    policy = Cautious(("a", "b"), 24.0, segments=24)
    good, better = [1.0, 0.95], [1.0, 0.5]
    bans = []
    for _ in range(24):
        task = policy.task()
        if task is None:
            break
        trials = task.trial
        task = decide(policy, {"a": good, "b": better})
        begin, stood = policy.state, policy.decisions[-1].segment
        if task.wire == "b" and trials:
            report(policy, task, [0.6, TIMES * 1.0 + MORE + 1e-6])
            assert policy.state == begin
            bans.append(policy.banned["b"] - stood - 1)
        else:
            report(policy, task, [1.0])
            assert policy.state == task.end
    assert bans == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("last, back", [
    (TIMES * 1.0 + MORE, False), (TIMES * 1.0 + MORE + 1e-9, True), (np.nan, True), (np.inf, True)
])  # fmt: skip
def test_what_is_a_step_back(last, back):
    policy = Cautious(("a", "b"), 12.0)
    report(policy, decide(policy, {"a": [1.0, 0.9], "b": [1.0, 0.95]}), [1.0])
    begin = policy.state
    task = decide(policy, {"a": [1.0, 0.9], "b": [1.0, 0.95]})
    report(policy, task, [0.8, last])
    assert (policy.state == begin) == back and (task.wire in policy.banned) == back


def test_states_that_may_be_needed_again_are_not_overwritten():
    """Whatever steps back when: a task never ends in the state that its segment began with."""
    rng = np.random.default_rng(2)
    policy, kept = Cautious(("a", "b", "c"), 40.0, segments=40), {START}
    while (task := policy.task()) is not None:
        assert task.begin in kept and task.end not in (policy.state, task.begin)
        kept.add(task.end)
        report(policy, task, rng.choice([[1.0, 0.9], [1.0, 5.0], [1.0, np.nan]]))


def test_a_wire_whose_trial_fails_is_not_chosen_and_all_failing_ends_nevertheless():
    policy = Cautious(("a", "b"), 12.0)
    assert decide(policy, {"a": [1.0, np.nan], "b": [1.0, 0.99]}).wire == "b"
    assert np.isnan(policy.decisions[0].scores["a"]) and set(policy.banned) == {"a"}
    bad, tasks = Cautious(("a", "b"), 12.0), 0
    while (task := bad.task()) is not None:
        report(bad, task, [1.0, np.inf])
        tasks += 1
    assert bad.state == START and tasks < 100 and bad.spent == pytest.approx(12.0)


def test_a_single_wire_is_never_tried():
    policy = Cautious(("a",), 12.0)
    _, tasks = drive(policy, World({"a": (0.01, 1.0, 0.0)}))
    assert not any(task.trial for task in tasks) and policy.tried == 0


# ---- AdaPrec, by accuracies

LEARNING = {"fast": (0.1, 0.9, 0.3), "exact": (0.4, 0.9, 0.6), "bad": (0.1, 0.3, 0.9)}  # seconds, end, speed


def learn(policy, wires):
    """Drives a policy over wires whose accuracy rises towards an end: all tasks."""
    kept, tasks = {START: (0, 0.1)}, []
    while (task := policy.task()) is not None:
        tasks.append(task)
        (steps, accuracy), (seconds, end, speed) = kept[task.begin], wires[task.wire]
        marks = {round(task.steps * k / 3) for k in (1, 2, 3)}
        at, values = [], []
        for step in range(1, task.steps + 1):
            accuracy += (end - accuracy) * speed / 20
            if step in marks:
                at.append(steps + step)
                values.append(accuracy)
        kept[task.end] = steps + task.steps, accuracy
        policy.done(seconds * task.steps, at, values)
    return tasks


@pytest.fixture(scope="module")
def learned():
    policy = AdaPrec(tuple(LEARNING), 80.0, segments=2, steps=60)
    return policy, learn(policy, LEARNING)


def test_adaprec_tries_equal_steps_and_never_bans(learned):
    policy, tasks = learned
    assert {task.steps for task in tasks if task.trial} == {3}
    assert {task.steps for task in tasks if not task.trial} <= {57, 60} and policy.banned == {}


def test_adaprec_goes_on_with_the_wire_whose_accuracy_grows_most_per_second(learned):
    policy, _ = learned
    first = policy.decisions[0]
    assert first.wire == "fast" and set(first.scores) == set(LEARNING)
    assert first.expected["fast"] > first.expected["bad"]
    assert all(np.isfinite(value) and -0.2 < value < 1.2 for value in first.expected.values())


def test_the_same_accuracies_lead_to_the_same_decisions(learned):
    policy, _ = learned
    again = AdaPrec(tuple(LEARNING), 80.0, segments=2, steps=60)
    learn(again, LEARNING)
    assert again.decisions == policy.decisions


def test_adaprec_refuses_what_is_no_accuracy_and_leaves_a_wire_out_that_fails():
    policy = AdaPrec(("a", "b"), 12.0, steps=40)
    policy.task()
    with pytest.raises(ValueError, match="between 0 and 1"):
        policy.done(1.0, [1, 2], [0.5, 1.5])
    policy.done(1.0, [1, 2], [0.5, np.nan])
    policy.task()
    policy.done(1.0, [1, 2], [0.1, 0.2])
    assert policy.task().wire == "b" and np.isnan(policy.decisions[0].scores["a"])


def test_a_driver_that_overshoots_ends_when_the_time_is_over():
    policy = Cautious(("a", "b"), 1.0)
    while (task := policy.task()) is not None:
        assert 0 < task.seconds <= 1.0 - policy.spent + 1e-12
        report(policy, task, [1.0], seconds=0.3)
    assert policy.spent == pytest.approx(1.2) and policy.task() is None


def test_the_same_reports_lead_to_the_same_decisions():
    runs = [Cautious(tuple(FAST), BUDGET) for _ in range(2)]
    tasks = [drive(policy, World(FAST, 0.01)) for policy in runs]
    assert tasks[0] == tasks[1] and runs[0].decisions == runs[1].decisions


@pytest.mark.parametrize("change, message", [
    ({"wires": ()}, "at least one"),
    ({"wires": ("a", "a")}, "each once"),
    ({"seconds": 0.0}, "above 0"),
    ({"seconds": np.inf}, "above 0"),
    ({"segments": 0}, "above 0"),
    ({"share": 0.5}, "less than a segment"),
])  # fmt: skip
def test_a_policy_that_cannot_be_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Cautious(**{"wires": ("a", "b"), "seconds": 12.0} | change)


def test_adaprec_refuses_a_segment_without_steps_for_a_trial():
    with pytest.raises(ValueError, match="give more steps"):
        AdaPrec(("a", "b"), 12.0, steps=10)


@pytest.mark.parametrize("seconds, losses, rates, message", [
    (0.0, [1.0], [0.1], "clock that runs"),
    (np.nan, [1.0], [0.1], "clock that runs"),
    (1.0, [], [], "at least one"),
    (1.0, [1.0, 0.9], [0.1], "give as many"),
    (1.0, [1.0, 0.9], [0.2, 0.1], "ascend"),
    (1.0, [1.0], [np.inf], "finite"),
])  # fmt: skip
def test_a_report_that_cannot_be_is_refused_and_the_task_stays(seconds, losses, rates, message):
    policy = Cautious(("a", "b"), 12.0)
    task = policy.task()
    with pytest.raises(ValueError, match=message):
        policy.done(seconds, rates, losses)
    assert policy.task() == task and isinstance(task, Task)


def test_a_report_without_a_task_is_refused():
    with pytest.raises(ValueError, match=r"call task\(\) first"):
        Cautious(("a",), 12.0).done(1.0, [0.1], [1.0])
