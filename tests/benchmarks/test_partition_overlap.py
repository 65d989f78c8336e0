"""The shortest step that the order of its messages and its work allows."""

from dataclasses import replace

from benchmarks.apps.partition_steps import shortest
from miniapps.partition.pricing.events import KernelCall, Summed

WORK = KernelCall("work", "mm", True, (), ((), ()), ())
SUM = Summed("sum", (0, 1), "none", "", "float32", 3, 1, False)
START, FINISH = replace(SUM, part="start"), replace(SUM, part="finish")


def of(*events, calls):
    return shortest(events, calls, between=0.0, of_element=1.0)


def test_a_sum_that_is_awaited_at_once_adds_its_time():
    assert of(WORK, SUM, WORK, calls=[2.0, 4.0]) == 9.0


def test_work_hides_a_sum_that_began_early():
    assert of(WORK, START, WORK, FINISH, calls=[2.0, 4.0]) == 6.0


def test_what_work_does_not_hide_is_waited_for():
    assert of(WORK, START, WORK, FINISH, calls=[2.0, 1.0]) == 5.0


def test_messages_pass_one_after_the_other():
    other = replace(START, node="other")
    events = (START, other, WORK, FINISH, replace(FINISH, node="other"))
    assert of(*events, calls=[4.0]) == 6.0


def test_sums_of_one_rank_send_nothing():
    assert of(WORK, replace(SUM, group=()), calls=[2.0]) == 2.0


def test_work_between_the_calls_counts():
    assert shortest([WORK, START, WORK, FINISH], [2.0, 4.0], between=0.5, of_element=1.0) == 8.0
