"""Times the calls of one rank's step alone, where they stand in the step (`alone`, `watched`).

    rehearsal = Rehearsal(config, options, rank=0, size=2)
    seconds = rehearsal.run()

Steps with torch's network as one call give the seconds of this suite's calls, of the network, and of all between calls;
steps in turn with them those of torch's kernels. Each kernel also gets its share of the time between them, so that
together they take as long as the network.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from miniapps.dlrm import problem
from miniapps.dlrm.alone import Alone
from miniapps.dlrm.program import STEP, own_calls, timed_config
from miniapps.dlrm.watched import Watch, now
from miniapps.dlrm.works import between, is_of_torch, recorded
from miniapps.runner.options import RunOptions
from miniapps.untrusted.program import Work

TURNS = 3  # steps of each kind in a run
ALIKE = 0.05  # difference of shares of a processor
SHORTEST_S = 1e-9


class Rehearsal:
    """The step of `rank` of `size`, ready to be timed, with real tables."""

    def __init__(self, config: Any, options: RunOptions, rank: int, size: int):
        self._step = Alone(timed_config(config), options, rank, size, problem.given(config))
        self._watch = Watch(self._step)
        self._number = STEP
        self._known: dict[
            bool, list[Work]
        ] = {}  # works by `fine`, of the first steps: they name all later ones
        self._turn(False)
        self._rest = between(own_calls(self._watch.events), self._watch.sent)
        self._turn(True)

    def run(self) -> dict[Work, float]:
        """Seconds of each work, the mean over its calls in a step of their medians over steps."""
        turns = [(self._turn(False), self._turn(True)) for _ in range(TURNS)]
        most = max(min(plain[-1], fine[-1]) for plain, fine in turns)
        turns = [each for each in turns if min(each[0][-1], each[1][-1]) >= most - ALIKE]  # not interrupted
        seconds, networks, rests, _ = zip(*(plain for plain, _ in turns), strict=True)
        by: dict[Work, list[float]] = defaultdict(list)
        for work, each in zip(self._known[False], np.median(seconds, axis=0).tolist(), strict=True):
            by[work].append(each)
        middle = np.median([fine[0] for _, fine in turns], axis=0)
        self._add_network(by, middle, float(np.median(networks)))
        by[self._rest].append(float(np.median(rests)))
        by[self._tables()].append(self._recorded())
        return {work: max(float(np.mean(each)), SHORTEST_S) for work, each in by.items()}

    def _turn(self, fine: bool) -> tuple[np.ndarray, float, float, float]:
        """(seconds of each call, seconds of the network, of all between calls, share of the processor) of a step."""
        watch = self._watch
        self._step.prepare(self._number)
        with watch.calls(fine):
            self._step.run(self._number)
        self._number += 1
        works = [event for event in watch.events if isinstance(event, Work)]
        self._known.setdefault(fine, works)
        network = sum(watch.network)
        return np.array(watch.seconds), network, watch.whole - sum(watch.seconds) - network, watch.share

    def _add_network(self, by: dict[Work, list[float]], seconds: np.ndarray, network: float) -> None:
        """Add torch's kernels, of a network that takes `network` seconds in a step."""
        pairs = zip(self._known[True], seconds.tolist(), strict=True)
        kernels = [(work, each) for work, each in pairs if is_of_torch(work)]
        whole = sum(each for _, each in kernels)
        share = max(network - whole, 0.0) / len(kernels)  # watched calls may take longer than the network
        for work, each in kernels:
            by[work].append(each * min(network / whole, 1.0) + share)

    def _tables(self) -> Work:
        shards = self._step.trainer.tables.shards
        return recorded(sum(of.weights.size for of in shards), sum(len(of.rows.own) for of in shards))

    def _recorded(self) -> float:
        """Seconds of fingerprints of this rank's parts of all tables."""
        tracer, begin = self._step.ctx.tracer, now()
        for of in self._step.trainer.tables.shards:
            for block, part in enumerate(of.rows.parts(of.weights)):
                tracer.array(of.placed.table.name, block, part)
        return now() - begin

    def close(self) -> None:
        """Remove the trace of the steps."""
        self._step.close()
