"""The course of each policy."""

from collections.abc import Callable
from typing import Any

from miniapps.learning.course.steps import Timed
from miniapps.learning.policies.adaptive import Adaptive
from miniapps.learning.policies.courses import Fastest, LGreco, OneWire

COURSES: dict[str, Callable[[Any, int], Timed]] = {
    "fixed": OneWire,
    "fastest": Fastest,
    "lgreco": LGreco,
    "adaprec": Adaptive,
    "cautious": Adaptive,
}
