"""Options of DLRM."""

from __future__ import annotations

from dataclasses import dataclass

from miniapps.checkpoints.options import Checkpoints
from miniapps.embeddings.sums import ORDERS
from miniapps.learning.course.options import ParallelSteps, Seeds, directory, evaluations, samples, target
from miniapps.runner.config import HUGE, INT32, option, section

RECORDED = "recorded"
DATA = "ml-100k", "zipf", RECORDED


@dataclass
class Data:
    """Samples with dense features and bags of rows."""

    name: str = samples(
        DATA,
        "ml-100k (80,000 + 20,000 ratings of films, from the package recbole); zipf, drawn at random without "
        "files; or recorded, drawn like the lookups of the run of --lookups",
        default="zipf",
    )
    dir: str = directory()


@dataclass
class Model:
    """Two perceptrons, and tables of embeddings between them."""

    hidden: int = option(
        64, help="width of the perceptrons' hidden layers", minimum=1, maximum=2**14, effect="size"
    )
    aggregate: str = option(
        "sorted",
        help="order in which the rows of a bag, and in the backward pass the gradients of a row, are added",
        choices=tuple(ORDERS),
        role="method",
        flag="--aggregate",
    )


@dataclass
class Embeddings:
    """Tables of embeddings, and the samples that --data zipf and recorded draw."""

    rows: int = option(
        1_000_000, help="zipf: rows of a table", minimum=1, maximum=2**30, flag="--rows", effect="size"
    )
    tables: int = option(8, help="zipf: tables", minimum=1, maximum=1024, flag="--tables", effect="size")
    zipf: float = option(
        1.05,
        help="zipf: the k-th most popular row has a probability proportional to k^-zipf; 0: all rows equal",
        minimum=0.0,
        maximum=10.0,
        flag="--zipf",
    )
    pooling: int = option(
        8, help="zipf: rows per bag", minimum=0, maximum=1024, flag="--pooling", effect="size"
    )
    lookups: str = option(
        "", help="recorded: directory of a run of dlrm, which recorded its lookups", flag="--lookups"
    )
    features: int = option(13, help="zipf, recorded: dense features of a sample", minimum=1, maximum=1024)
    columns: int = option(16, help="columns of the tables", minimum=1, maximum=4096, effect="size")
    blocks: int = option(
        16, help="blocks of rows per table, each with a fingerprint and an owner", minimum=1, maximum=2**16
    )
    rate_ratio: float = option(
        1.0, help="learning rate of tables divided by that of the perceptrons", minimum=0.0, maximum=HUGE
    )
    sharding: str = option(
        "table",
        help="assignment of tables to ranks, one name for all or one per table, separated by commas: replicated; table "
        "(one rank holds it; table:rank=N names the rank); column; row; row-pooled (row, but ranks send partial sums "
        "of bags); auto: the fastest by the prices of --calibration",
        role="method",
        effect="ownership",
        flag="--sharding",
    )
    calibration: tuple[str, ...] = option(
        (),
        help="for --sharding auto: a run of fpna calibrate --plan, best on as many ranks; may be given several times",
        role="control",
        flag="--calibration",
    )
    fingerprints: int = option(
        10,
        help="steps between fingerprints of tables; 0: only before the first and after the last step",
        role="control",
        records=("fingerprints:table.*",),
        minimum=0,
        maximum=INT32,
    )


@dataclass
class Evaluation:
    """AUC and accuracy on the test samples."""

    every: int = evaluations("values:auc", "values:accuracy")
    target: float = target()


@dataclass
class Plan:
    """The plan of a step, in place of a run."""

    save: str = option(
        "",
        help="write what each rank computes and sends to this file instead of training; fpna price predicts its time",
        role="control",
        flag="--save-plan",
    )


@dataclass
class DlrmConfig:
    """All options of `python -m miniapps.dlrm` beside the common ones."""

    data: Data = section(Data)
    model: Model = section(Model)
    training: ParallelSteps = section(ParallelSteps)
    embeddings: Embeddings = section(Embeddings)
    seeds: Seeds = section(Seeds)
    evaluation: Evaluation = section(Evaluation)
    output: Checkpoints = section(Checkpoints)
    plan: Plan = section(Plan)
