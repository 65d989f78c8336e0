"""All runs, with the results that reports, rules and tables share."""

from __future__ import annotations

from collections import ChainMap
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from analysis import studies
from analysis.headline import Finding
from analysis.load.frames import Frames
from analysis.pairs import Pairs, pairs
from analysis.predict.choices.whatif import WhatIf
from analysis.predict.scoring.score import Score, score
from analysis.runs import Id, samples
from analysis.studies.contract import Nothing, Study
from analysis.verdict import Group, judge
from miniapps.untrusted.ledger import Ledger


@dataclass(frozen=True)
class Overview:
    """The frames of all runs, and results that several sections need, each computed once.

    `against`: the reference with which runs are compared; None: one is chosen per problem. `ledger`: the predictions of
    the runs. `what_if`: predictions for other machines."""

    frames: Frames
    against: Id | None = None
    ledger: Ledger | None = None
    what_if: WhatIf | None = None

    @cached_property
    def groups(self) -> list[Group]:
        """The groups of all runs, judged."""
        return judge(self.frames)

    @cached_property
    def labels(self) -> list[str]:
        """The labels of the groups; in all figures each is a series, in this order."""
        return [group.label for group in self.groups]

    @cached_property
    def words(self) -> dict[str, str]:
        """{label of a group, or of a case of a study: the same in words, for people}."""
        cases = [dict(study.words(known)) for study, known in self.known.values()]
        return dict(ChainMap({group.label: group.words for group in self.groups}, *cases))

    @cached_property
    def stepped(self) -> Frames:
        """The runs whose steps follow from each other, without runs whose steps are samples of variants."""
        kept = ~samples(self.frames.runs).to_numpy()
        return replace(self.frames, runs=self.frames.runs[kept].reset_index(drop=True))

    @cached_property
    def pairs(self) -> list[Pairs]:
        """The pairs of runs of `stepped` that are compared."""
        return pairs(self.stepped, self.against)

    @cached_property
    def score(self) -> Score | None:
        """The comparison of the ledger's predictions with the runs; None without a ledger."""
        return score(self.frames, self.ledger) if self.ledger else None

    @cached_property
    def known(self) -> dict[str, tuple[Study[Any], Any]]:
        """{name: (study, its data)} of the studies for which runs recorded data."""
        every = ((name, self.study(name)) for name in studies.names())
        return {name: (studies.study(name), known) for name, known in every if known is not None}

    def study(self, name: str) -> Any:
        """The data of the study `name`, read once; None if no run recorded any."""
        if name not in self._read:
            self._read[name] = None
            with suppress(Nothing):
                self._read[name] = studies.study(name).read(self, None)
        return self._read[name]

    @cached_property
    def _read(self) -> dict[str, Any]:
        return {}

    @cached_property
    def decisions(self) -> list[tuple[str, str, str]]:
        """(name, verdict, words) of the judgements of studies, such as solves in which a decision changed."""
        return [row for study, known in self.known.values() for row in study.judged(known)]

    @cached_property
    def findings(self) -> list[Finding]:
        """The findings of studies, which the verdict over all runs includes beside the groups."""
        return [finding for study, known in self.known.values() for finding in study.findings(known)]
