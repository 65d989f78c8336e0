"""All rules, and a function that applies them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd

from analysis import studies
from analysis.limits import SEVERITIES, Limit
from analysis.lint import conditions, records, sampling, timing
from analysis.lint.experiment import Experiment
from analysis.overview import Overview

RULES: tuple[Callable[[Experiment], Iterator[Limit]], ...] = (
    sampling.only_one_sample,
    sampling.missing_base_case,
    sampling.few_repeats,
    sampling.wide_interval,
    sampling.mean_of_ratios,
    conditions.mixed_environments,
    conditions.outside_the_promise,
    conditions.past_the_wrapper,
    conditions.mixed_nodes,
    conditions.one_allocation,
    conditions.not_recorded,
    conditions.oversubscribed,
    timing.warm_up_included,
    timing.unstable_times,
    timing.several_clusters,
    timing.order_not_shuffled,
    timing.tracing_overhead,
    records.faults_counted,
    records.incomplete_runs,
    records.clock_problems,
    records.no_times,
)
FINDINGS = ("rule", "severity", "section", "where", "found", "remedy")


def lint(overview: Overview) -> pd.DataFrame:
    """Applies all rules to the runs of `overview`: their findings, columns FINDINGS, the gravest first.

    `rule` is the name of the rule, `severity` one of SEVERITIES, `section` the id of the section of the report that the
    finding concerns, `where` the runs or groups, `found` the fact, and `remedy` the advice.
    """
    experiment = Experiment(overview)
    found = [(rule, limit) for rule in RULES for limit in rule(experiment)]
    found += _of_studies(overview)
    rows = [
        (name_of(rule), limit.severity, limit.section, limit.where, limit.fact, limit.remedy)
        for rule, limit in found
    ]
    frame = pd.DataFrame(rows, columns=list(FINDINGS)).astype("str")
    return frame.sort_values("severity", key=lambda x: x.map(SEVERITIES.index), kind="stable").reset_index(
        drop=True
    )


def _of_studies(overview: Overview) -> Iterator[tuple[Callable, Limit]]:
    """(rule, finding) of the rules of all studies, each on the runs of its study."""
    for name in studies.names():
        rules = studies.study(name).rules
        if rules and (known := overview.study(name)) is not None:
            yield from ((rule, limit) for rule in rules for limit in rule(known))


def name_of(rule: Callable) -> str:
    """The name of a rule in findings, such as `few-repeats`."""
    return rule.__name__.replace("_", "-")
