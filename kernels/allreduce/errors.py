"""Errors of an all-reduce, and lists of ranks in messages."""

from __future__ import annotations

from collections.abc import Iterable


class PlanMismatch(ValueError):
    """Ranks of one communicator asked for different reducers; the message says which rank asked for what."""


class CallMismatch(ValueError):
    """In checked mode: ranks passed contributions of different shapes or types; the message lists them by rank."""


class RanksDisagree(RuntimeError):
    """After an all-reduce the ranks do not hold the same bits; `ranks`: the ranks in the minority."""

    def __init__(self, message: str, ranks: list[int]):
        super().__init__(message)
        self.ranks = ranks


class ReplayError(ValueError):
    """A recorded order of arrival that does not fit: other size, no permutation, used up, not replayable."""


class ScheduleError(ValueError):
    """A schedule that cannot be carried out: the message names round and rank."""


def ranks_text(ranks: Iterable[int], shown: int = 8) -> str:
    """'rank 2', 'ranks 0, 1, 3', and with many 'ranks 0, 1, ... (64 ranks)'."""
    ranks = list(ranks)
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    listed = ", ".join(map(str, ranks[:shown]))
    return f"ranks {listed}" if len(ranks) <= shown else f"ranks {listed}, ... ({len(ranks)} ranks)"


def by_rank(texts: Iterable[str]) -> str:
    """The texts of all ranks, each once: 'ranks 0, 1: float64; rank 2: float32'."""
    holders: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        holders.setdefault(text, []).append(rank)
    return "; ".join(f"{ranks_text(ranks)}: {text}" for text, ranks in holders.items())
