"""MovieLens 100k as samples of DLRM: 100,000 ratings of 943 users and 1,682 films (Harper & Konstan 2015).

The licence of the data forbids redistribution, so that they are read from the installed package recbole. The task is to
predict whether a user likes a film, that is, gives it 4 or 5 of 5.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from miniapps.embeddings.bags import Bags, concatenated
from miniapps.learning.samples.source import Source, contents

FIELDS = ("user", "item", "age", "gender", "occupation", "zip", "year", "genres")  # one table each
ROWS = (943, 1682, 61, 2, 21, 795, 73, 19)  # of these tables
FEATURES = ("time", "hour", "age", "year")  # dense
COUNTS = (80_000, 20_000)  # samples for training, and for tests
LIKED = 4.0  # the least rating of a film that the user likes
EVERY = 5  # every fifth rating is for tests


@dataclass(frozen=True)
class Ratings:
    """`dense` float32 (n, features), `bags` of n samples for each table, `labels` uint8 (n,)."""

    dense: np.ndarray
    bags: list[Bags]
    labels: np.ndarray

    def take(self, chosen: np.ndarray) -> Ratings:
        """The samples `chosen`, in that order."""
        return Ratings(self.dense[chosen], [bags.take(chosen) for bags in self.bags], self.labels[chosen])

    def arrays(self) -> list[np.ndarray]:
        """All arrays, from which `of_arrays` makes ratings."""
        return [self.dense, self.labels, *(x for bags in self.bags for x in (bags.lengths, bags.rows))]


def of_arrays(arrays: Sequence[np.ndarray]) -> Ratings:
    """Ratings from the arrays that `Ratings.arrays` returned."""
    dense, labels, *rest = arrays
    return Ratings(dense, [Bags(*pair) for pair in zip(rest[::2], rest[1::2], strict=True)], labels)


def joined(parts: Sequence[Ratings]) -> Ratings:
    """Several groups of samples, one after another."""
    bags = [concatenated(of_table) for of_table in zip(*(part.bags for part in parts), strict=True)]
    return Ratings(
        np.concatenate([part.dense for part in parts]), bags, np.concatenate([part.labels for part in parts])
    )


def load(directory: str = "") -> Ratings:
    """All ratings, in the order of the file. Raises UsageError, with the remedy, if a file is missing or damaged."""
    return SOURCE.read(contents("ml-100k", SOURCE, directory))


def _of_files(files: dict[str, bytes]) -> Ratings:
    ratings, users, items = (_table(content) for content in files.values())
    of_user = {row[0]: row[1:] for row in users}
    of_item = {row[0]: (row[-2], row[-1].split()) for row in items}
    columns: list[list[str]] = [[] for _ in FIELDS[:-1]]
    genres: list[list[str]] = []
    for user, item, _, _ in ratings:
        age, gender, occupation, code = of_user[user]
        year, kinds = of_item[item]
        for column, value in zip(columns, (user, item, age, gender, occupation, code, year), strict=True):
            column.append(value)
        genres.append(kinds)
    lengths = np.array([len(kinds) for kinds in genres], np.int32)
    bags = [Bags(np.ones(len(ratings), np.int32), _numbered(column)) for column in columns]
    bags.append(Bags(lengths, _numbered([kind for kinds in genres for kind in kinds])))
    times = np.array([float(row[3]) for row in ratings])
    years = np.array([float(year) if year.isdigit() else 0.0 for year in columns[6]])
    years[years == 0.0] = years[years > 0.0].mean()
    dense = np.stack(
        [
            (times - times.min()) / (times.max() - times.min()),
            times % 86400 / 86400,
            np.array([float(age) for age in columns[2]]) / 100,
            (years - 1900) / 100,
        ],
        axis=1,
    ).astype(np.float32)
    labels = (np.array([float(row[2]) for row in ratings]) >= LIKED).astype(np.uint8)
    return Ratings(dense, bags, labels)


def is_test(count: int) -> np.ndarray:
    """bool (count,): every fifth rating is for tests."""
    return np.arange(count) % EVERY == EVERY - 1


def _table(content: bytes) -> list[list[str]]:
    """The rows below the header of a file of tab-separated text."""
    return list(csv.reader(content.decode("utf-8").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))[1:]


def _numbered(values: list[str]) -> np.ndarray:
    """int32: the index of each value among all distinct values, sorted as text."""
    return np.unique(np.array(values), return_inverse=True)[1].astype(np.int32)


SOURCE = Source(
    {
        "ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
        "ml-100k.user": "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
        "ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
    },
    "recbole/dataset_example/ml-100k",
    "recbole",
    "get it (GroupLens, whose licence does not let us pass it on, 2.1 MB) by pip install --no-deps recbole",
    _of_files,
    gzipped=False,
    instead="--data zipf",
)
