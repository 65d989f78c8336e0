"""All rules, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd

from analysis.lint import conditions, records, sampling, timing
from analysis.lint.finding import SEVERITIES, Experiment, Finding
from analysis.overview import Overview

RULES: tuple[Callable[[Experiment], Iterator[Finding]], ...] = (
    sampling.only_one_sample,
    sampling.missing_base_case,
    sampling.few_repeats,
    sampling.wide_interval,
    sampling.extrapolated,
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
    """What limits the conclusions from the runs of `overview`; columns FINDINGS, the gravest first.

    `rule` is the name of the rule, `severity` one of SEVERITIES, `section` the id of the part of the report that is
    concerned, `where` the runs or groups, `found` what is so, and `remedy` what to do.
    """
    experiment = Experiment(overview)
    rows = [
        (name_of(rule), f.severity, f.section, f.where, f.fact, f.remedy)
        for rule in RULES
        for f in rule(experiment)
    ]
    frame = pd.DataFrame(rows, columns=list(FINDINGS)).astype("str")
    return frame.sort_values("severity", key=lambda x: x.map(SEVERITIES.index), kind="stable").reset_index(
        drop=True
    )


def name_of(rule: Callable) -> str:
    """`few-repeats`."""
    return rule.__name__.replace("_", "-")
