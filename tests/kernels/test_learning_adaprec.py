"""AdaPrec on synthetic curves: its tasks, its steps back, its regret against the best fixed wire."""

import numpy as np
import pytest

from benchmarks.harness.regret import regret
from kernels.guarantees import ChoiceError
from kernels.learning.adaprec import MORE, SHARE, START, TIMES, AdaPrec, Task

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
        """(state, seconds, losses, rates) of so many seconds or steps."""
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
        return (loss, rates), count * each, losses, places


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
    reached = [drive(AdaPrec(tuple(wires), BUDGET), World(wires, 0.001, seed))[0] for seed in range(3)]
    lost = regret({wire: [-loss] * 3 for wire, loss in losses.items()}, [-loss for loss in reached])
    assert lost.best != "bad" and losses["bad"] > 1
    assert lost.mean < 0.03, (losses, reached)


def test_speculation_takes_the_share_of_time_that_was_given():
    policy = AdaPrec(("float32", "fp8", "sign"), BUDGET)
    _, tasks = drive(policy, World(SLOW))
    assert policy.spent == pytest.approx(BUDGET, rel=0.02)
    assert policy.tried / policy.spent == pytest.approx(3 * SHARE, abs=0.03)
    assert sum(task.trial for task in tasks) == 3 * 12 and len(policy.decisions) in (12, 13)


def test_trials_of_a_segment_begin_in_one_state_and_the_chosen_one_goes_on():
    _, tasks = drive(AdaPrec(("float32", "fp8"), BUDGET), World(SLOW))
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
    policy.done(seconds or task.seconds, losses, np.linspace(0, 1, len(losses)) if rates is None else rates)


def decide(policy, by_wire):
    """One segment in which trials report these losses, and the run goes on as it was: what ran."""
    while (task := policy.task()).trial:
        report(policy, task, by_wire[task.wire], seconds=0.05)
    return task


def test_the_wire_that_gains_most_per_second_is_chosen():
    policy = AdaPrec(("a", "b", "c"), 12.0)
    assert decide(policy, {"a": [1.0, 0.9], "b": [1.0, 0.7], "c": [1.0, 0.8]}).wire == "b"
    (decision,) = policy.decisions
    assert (decision.segment, decision.wire, list(decision.scores)) == (0, "b", ["a", "b", "c"])
    assert decision.scores["b"] == pytest.approx(
        0.3 / 0.05
    )  # two points have no curve: the gain over the trial


def test_equal_scores_take_the_first_wire():
    same = [1.0, 0.9, 0.8]
    assert decide(AdaPrec(("b", "a"), 12.0), {"a": same, "b": same}).wire == "b"


def test_doubt_counts_against_a_wire_but_not_in_the_form_of_the_poster():
    """Both fall to about the same value, one of them by leaps."""
    trials = {
        "leaping": [2.0, 1.5, 1.94, 1.3, 1.6, 1.1, 1.5, 1.18],
        "steady": [2.0, 1.8, 1.64, 1.51, 1.41, 1.33, 1.26, 1.21],
    }
    improved, poster = (AdaPrec(tuple(trials), 12.0, form, steps=100) for form in ("improved", "poster"))
    assert decide(improved, trials).wire == "steady"
    decide(poster, trials)
    lost = {wire: poster.decisions[0].scores[wire] - improved.decisions[0].scores[wire] for wire in trials}
    assert lost["leaping"] > 5 * abs(lost["steady"])


def test_a_run_that_gets_worse_goes_back_and_its_wire_is_banned_twice_as_long_each_time():
    policy = AdaPrec(("a", "b"), 24.0, segments=24)
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
    policy = AdaPrec(("a", "b"), 12.0)
    report(policy, decide(policy, {"a": [1.0, 0.9], "b": [1.0, 0.95]}), [1.0])
    begin = policy.state
    task = decide(policy, {"a": [1.0, 0.9], "b": [1.0, 0.95]})
    report(policy, task, [0.8, last])
    assert (policy.state == begin) == back and (task.wire in policy.banned) == back


def test_states_that_may_be_needed_again_are_not_overwritten():
    """Whatever steps back when: a task never ends in the state that its segment began with."""
    rng = np.random.default_rng(2)
    policy, kept = AdaPrec(("a", "b", "c"), 40.0, segments=40), {START}
    while (task := policy.task()) is not None:
        assert task.begin in kept and task.end not in (policy.state, task.begin)
        kept.add(task.end)
        report(policy, task, rng.choice([[1.0, 0.9], [1.0, 5.0], [1.0, np.nan]]))


def test_a_wire_whose_trial_fails_is_not_chosen_and_all_failing_ends_nevertheless():
    policy = AdaPrec(("a", "b"), 12.0)
    assert decide(policy, {"a": [1.0, np.nan], "b": [1.0, 0.99]}).wire == "b"
    assert np.isnan(policy.decisions[0].scores["a"]) and set(policy.banned) == {"a"}
    bad, tasks = AdaPrec(("a", "b"), 12.0), 0
    while (task := bad.task()) is not None:
        report(bad, task, [1.0, np.inf])
        tasks += 1
    assert bad.state == START and tasks < 100 and bad.spent == pytest.approx(12.0)


def test_a_single_wire_is_never_tried():
    policy = AdaPrec(("a",), 12.0)
    _, tasks = drive(policy, World({"a": (0.01, 1.0, 0.0)}))
    assert not any(task.trial for task in tasks) and policy.tried == 0


def test_the_poster_tries_equal_steps_and_never_bans():
    policy = AdaPrec(tuple(SLOW), BUDGET, "poster", steps=100)
    _, tasks = drive(policy, World(SLOW))
    assert {task.steps for task in tasks if task.trial} == {5}
    assert {task.steps for task in tasks if not task.trial} <= {95, 100} and policy.banned == {}


def test_a_driver_that_overshoots_ends_when_the_time_is_over():
    policy = AdaPrec(("a", "b"), 1.0)
    while (task := policy.task()) is not None:
        assert 0 < task.seconds <= 1.0 - policy.spent + 1e-12
        report(policy, task, [1.0], seconds=0.3)
    assert policy.spent == pytest.approx(1.2) and policy.task() is None


def test_the_same_reports_lead_to_the_same_decisions():
    runs = [AdaPrec(tuple(FAST), BUDGET) for _ in range(2)]
    tasks = [drive(policy, World(FAST, 0.01)) for policy in runs]
    assert tasks[0] == tasks[1] and runs[0].decisions == runs[1].decisions


@pytest.mark.parametrize("change, error, message", [
    ({"wires": ()}, ValueError, "at least one"),
    ({"wires": ("a", "a")}, ValueError, "each once"),
    ({"seconds": 0.0}, ValueError, "above 0"),
    ({"seconds": np.inf}, ValueError, "above 0"),
    ({"segments": 0}, ValueError, "above 0"),
    ({"share": 0.5}, ValueError, "less than a segment"),
    ({"form": "posters"}, ChoiceError, "unknown form 'posters': choose one of poster, improved"),
    ({"form": "poster", "steps": 10}, ValueError, "give more steps"),
])  # fmt: skip
def test_a_policy_that_cannot_be_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        AdaPrec(**{"wires": ("a", "b"), "seconds": 12.0} | change)


@pytest.mark.parametrize("seconds, losses, rates, message", [
    (0.0, [1.0], [0.1], "clock that runs"),
    (np.nan, [1.0], [0.1], "clock that runs"),
    (1.0, [], [], "at least one"),
    (1.0, [1.0, 0.9], [0.1], "give as many"),
    (1.0, [1.0, 0.9], [0.2, 0.1], "ascend"),
    (1.0, [1.0], [np.inf], "finite"),
])  # fmt: skip
def test_a_report_that_cannot_be_is_refused_and_the_task_stays(seconds, losses, rates, message):
    policy = AdaPrec(("a", "b"), 12.0)
    task = policy.task()
    with pytest.raises(ValueError, match=message):
        policy.done(seconds, losses, rates)
    assert policy.task() == task and isinstance(task, Task)


def test_a_report_without_a_task_is_refused():
    with pytest.raises(ValueError, match=r"call task\(\) first"):
        AdaPrec(("a",), 12.0).done(1.0, [1.0], [0.1])
