"""Options of the training mini-app."""

from dataclasses import dataclass

from miniapps.checkpoints.options import Output
from miniapps.runner.config import HUGE, INT32, SEEDS, option, section

IMAGES = ("fashion", "mnist5000", "digits", "blobs")
RATED = ("ml-100k", "zipf")  # samples with bags of rows, for dlrm
DATA = (*IMAGES, "cora", "text", *RATED)
NETWORKS = ("mlp", "cnn")  # of images
PARTITIONED = ("gpt", "bert", "unet", "moe")  # by `miniapps.partition` alone
MODELS = (*NETWORKS, "graphsage", "dlrm", *PARTITIONED)
AGGREGATIONS = ("sorted", "exact", "atomic", "emulated")
POLICIES = ("fixed", "fastest", "lgreco", "adaprec", "adaprec-poster")
SAMPLES = 2**20  # of a batch, at most
WIDTH = 2**14  # of a layer, at most


def _wires() -> list[str]:
    from kernels import wires

    return [*wires.SUMMARIES, *wires.LOSSY]


_OF_IMAGES = (
    "images: Fashion-MNIST (60,000 + 10,000 of 28 x 28), MNIST-5000 (4,000 + 1,000), digits (1,438 + 359 of 8 x 8), or "
    "blobs, drawn at random (2,048 + 512 of 8 x 8), which needs no files"
)
_OF_LAYERS = "mlp: two hidden layers; cnn: two convolutions, one hidden layer"


@dataclass
class Images:
    """Images and their labels."""

    name: str = option("fashion", help=_OF_IMAGES, choices=IMAGES, flag="--data", effect="source")
    dir: str = option(
        "",
        role="control",
        flag="--data-dir",
        help="directory of the files; none: where packages install them",
    )


@dataclass
class Learned(Images):
    """What is learned: images, or the nodes of a graph."""

    name: str = option(
        "fashion",
        help=f"{_OF_IMAGES}; or a graph: cora (2,708 papers, 140 to learn from, 1,000 to test), for --model graphsage; "
        "or text: the help topics that Python brings, byte by byte, for gpt and bert; or, for dlrm, ml-100k (80,000 + "
        "20,000 ratings of films, of the package recbole), or zipf, drawn at random, which needs no files",
        choices=DATA,
        flag="--data",
        effect="source",
    )
    features: str = option(
        "raw",
        help="cora: the words of a paper as they are, 0 or 1, whose first sum is exact; or each row divided by its sum",
        choices=("raw", "normalised"),
    )


@dataclass
class Layers:
    """A network that is given images."""

    name: str = option("mlp", help=_OF_LAYERS, choices=NETWORKS, flag="--model")
    hidden: int = option(128, help="width of hidden layers", minimum=1, maximum=WIDTH, effect="size")
    channels: int = option(
        8,
        help="cnn: channels of the first convolution; the second has twice as many",
        minimum=1,
        maximum=1024,
    )


@dataclass
class Model(Layers):
    """A network that learns."""

    name: str = option(
        "mlp",
        help=f"{_OF_LAYERS}; graphsage: two layers that add up what neighbours in a graph have; dlrm: "
        "tables of embeddings between two perceptrons; over a mesh "
        "(--mesh): mlp, gpt and bert (transformers), unet (convolutions down and up again), moe (a mixture of experts)",
        choices=MODELS,
        flag="--model",
    )
    layers: int = option(4, help="gpt, bert: blocks", minimum=1, maximum=256, effect="size")
    heads: int = option(4, help="gpt, bert: heads of attention, each a block", minimum=1, maximum=256)
    tokens: int = option(128, help="gpt, bert: bytes of a sample", minimum=2, maximum=2**14, effect="size")
    experts: int = option(4, help="moe: experts, each a block", minimum=2, maximum=1024)
    dropout: float = option(
        0.0,
        help="probability with which an output of the last hidden layer is dropped",
        minimum=0.0,
        maximum=0.9,
    )
    neighbours: int = option(
        0,
        help="graphsage: neighbours of a paper that it learns from, at most, drawn anew for each epoch; 0: all",
        minimum=0,
        maximum=2**20,
    )
    second_neighbours: int = option(
        0, help="graphsage: the same of the neighbours' neighbours", minimum=0, maximum=2**20
    )
    aggregate: str = option(
        "sorted",
        help="graphsage: the order in which neighbours are added up, and gradients on their way back; emulated: an "
        "order of arrival drawn from seeds.order; dlrm: the same of the rows in a bag (sorted, exact)",
        choices=AGGREGATIONS,
        role="method",
        flag="--aggregate",
    )
    aggregate_inference: str = option(
        "same",
        help="graphsage: the order in which neighbours are added up where the network answers and does not learn: in "
        "evaluations; same: as --aggregate",
        choices=("same", *AGGREGATIONS),
        role="method",
        flag="--aggregate-inference",
    )


@dataclass
class Training:
    """Momentum SGD, rate (1 - t/T)^2 at step t of T; or Adam, at one rate."""

    steps: int = option(468, help="steps", minimum=0, maximum=INT32 - 1, flag="--steps")
    until: int | None = option(
        None,
        help="step after which this run stops, of those of the problem; none: after the last",
        role="control",
        flag="--until",
        effect="until",
        minimum=0,
        maximum=INT32 - 1,
    )
    batch: int = option(
        256, help="images of a step", unit="images", minimum=1, maximum=SAMPLES, effect="size", flag="--batch"
    )
    micro: int = option(
        32,
        help="images of a logical micro-batch: a block, whose gradient has one shape on any number of ranks",
        unit="images",
        minimum=1,
        maximum=SAMPLES,
    )
    rate: float = option(
        0.05, help="learning rate of the first step", minimum=0.0, maximum=HUGE, flag="--rate"
    )
    optimiser: str = option(
        "momentum", help="momentum SGD, or Adam", choices=("momentum", "adam"), flag="--optimiser"
    )
    momentum: float = option(0.9, help="momentum", minimum=0.0, maximum=1.0)
    decay: float = option(
        0.0, help="decay of weights: so much of each is added to its gradient", minimum=0.0, maximum=1.0
    )
    bucket: int = option(
        2**20,
        help="bytes of gradient that travel together, cut between tensors",
        unit="B",
        minimum=1,
        maximum=2**40,
    )
    wire: str = option(
        "as is",
        help="how gradients are encoded on their way, maybe with parameters (table:n=4)",
        role="method",
        effect="reduction",
        flag="--wire",
        choices=_wires,
        parameters=True,
    )
    divide: str = option(
        "after",
        help="by the number of images: the sum, or every contribution before it is encoded",
        choices=("after", "before"),
        role="method",
        effect="reduction",
        flag="--divide",
    )
    policy: str = option(
        "fixed",
        help="fixed: --wire; fastest: for each kind of tensor the wire of the least measured time; lgreco: for each "
        "tensor one, of the fewest bytes in all at no more error than --wire; adaprec, adaprec-poster: what gains most "
        "per time",
        choices=POLICIES,
        role="method",
        effect="reduction",
        flag="--policy",
    )
    candidates: str = option(
        "float32 fp8 table:n=2 sign",
        help="wires that a policy chooses from, with spaces between",
        role="method",
        effect="reduction",
        flag="--candidates",
    )
    seconds: float = option(
        0.0,
        help="seconds of training after which the run ends, evaluations on test images left out; 0: after its steps",
        unit="s",
        role="method",
        effect="until",
        flag="--seconds",
        minimum=0.0,
        maximum=HUGE,
    )
    depth: int = option(
        0,
        help="graphsage: micro-batches whose fields a thread gathers ahead",
        role="method",
        effect="cost",
        minimum=0,
        maximum=1024,
    )
    overlap: bool = option(
        True,
        help="buckets travel while the layers before them are still computed",
        role="method",
        effect="cost",
        flag="--overlap",
    )
    calls: str = option(
        "auto",
        help="network calls: one per micro-batch, or one per rank (bits then follow the layout); auto: per rank under "
        "guarantees none and run, per micro-batch under layout and exact",
        choices=("auto", "block", "rank"),
        role="method",
        effect="guarantee",
    )

    @property
    def last(self) -> int:
        """The step after which the run stops."""
        return self.steps if self.until is None else self.until

    @property
    def blocks(self) -> int:
        """Micro-batches of a step."""
        return self.batch // self.micro

    @property
    def tries(self) -> bool:
        """Whether the policy trains with several wires from one state."""
        return self.policy.startswith("adaprec")


@dataclass
class Seeds:
    """Seeds of what is drawn at random, each on its own; none: that of the run."""

    init: int | None = option(None, help="initial weights; none: --seed", minimum=0, maximum=SEEDS)
    data: int | None = option(
        None, help="order of the images, and blobs themselves; none: --seed", minimum=0, maximum=SEEDS
    )
    dropout: int | None = option(None, help="what is dropped; none: --seed", minimum=0, maximum=SEEDS)
    neighbours: int | None = option(
        None, help="neighbours that are learned from; none: --seed", minimum=0, maximum=SEEDS
    )
    order: int | None = option(
        None,
        help="orders of arrival where an aggregation is emulated; none: --seed",
        role="method",
        minimum=0,
        maximum=SEEDS,
    )


@dataclass
class Mesh:
    """A mesh of ranks, for models that are written for one device and partitioned (docs/partition.md)."""

    mesh: str = option(
        "",
        help="axes of the mesh with their sizes, data=2,model=2; none: one axis of all ranks for gpt, bert, unet and "
        "moe, and no mesh for the others",
        role="method",
        effect="ownership",
        flag="--mesh",
    )
    recipe: str = option(
        "dp",
        help="what the axes of the mesh carry: dp (samples), tp (heads, inner widths), dp+tp, zero (samples; "
        "parameters are stored in parts), spatial (rows and columns of images), dp+spatial, expert",
        role="method",
        effect="ownership",
        flag="--recipe",
    )
    map: str = option(
        "",
        help="which axis of the mesh carries each axis of the problem, batch=data,heads=model; none: by the recipe",
        role="method",
        effect="ownership",
        flag="--map",
    )
    axes: str = option(
        "",
        help="axes that cut the problem, batch,heads,ff; runs of one hash have the same ones; none: those of the "
        "recipe",
        flag="--axes",
    )
    blocks: str = option(
        "",
        help="blocks that axes are cut into, ff=16; none: batch by training.micro, others by the model",
        flag="--blocks",
    )
    shapes: str = option(
        "exact",
        help="of what a rank holds: exact, its blocks; padded, as many elements as the rank that has most, as devices "
        "that are handed fixed shapes need",
        choices=("exact", "padded"),
        role="method",
        effect="cost",
        flag="--shapes",
    )
    fuse: bool = option(
        True,
        help="partial sums over equal axes travel as one vector",
        role="method",
        effect="cost",
        flag="--fuse",
    )


@dataclass
class Evaluation:
    """Accuracy on the test images."""

    every: int = option(
        100,
        help="steps between evaluations; 0: after the last step only",
        role="control",
        flag="--evaluate-every",
        records=("values:accuracy", "values:weights_sample", "values:wire_*"),
        minimum=0,
        maximum=INT32,
    )
    target: float = option(
        0.0,
        help="accuracy whose time is reported as time_to_accuracy; 0: none",
        role="control",
        flag="--target",
        minimum=0.0,
        maximum=1.0,
    )
    outputs: str = option(
        "sample",
        help="graphsage: log-probabilities of the last evaluation that are recorded by value: a sample of 256, or all",
        choices=("sample", "all"),
        role="control",
        records=("values:outputs",),
    )


@dataclass
class Embeddings:
    """Tables of embeddings of dlrm, and what --data zipf draws for them."""

    rows: int = option(
        1_000_000, help="zipf: rows of a table", minimum=1, maximum=2**30, flag="--rows", effect="size"
    )
    tables: int = option(8, help="zipf: tables", minimum=1, maximum=1024, flag="--tables", effect="size")
    zipf: float = option(
        1.05,
        help="zipf: the row of rank k is drawn with probability proportional to k^-zipf; 0: all alike",
        minimum=0.0,
        maximum=10.0,
        flag="--zipf",
    )
    pooling: int = option(
        8, help="zipf: rows in a bag", minimum=0, maximum=1024, flag="--pooling", effect="size"
    )
    features: int = option(13, help="zipf: dense features of a sample", minimum=1, maximum=1024)
    columns: int = option(16, help="columns of the tables", minimum=1, maximum=4096, effect="size")
    blocks: int = option(
        16, help="blocks of rows of a table, which have fingerprints and owners", minimum=1, maximum=2**16
    )
    rate_ratio: float = option(
        1.0, help="learning rate of tables, over that of the perceptrons", minimum=0.0, maximum=HUGE
    )
    sharding: str = option(
        "table",
        help="which rank holds what of a table, one name for all tables or one for each with commas between: "
        "replicated; table (one rank, table:rank=N names it); column; row; row-pooled (sums of parts of bags travel); "
        "auto: that of --choice",
        role="method",
        effect="ownership",
        flag="--sharding",
    )
    choice: str = option(
        "",
        help="file of python -m analysis sharding --out, which says what --sharding auto is",
        role="control",
        flag="--choice",
    )
    fingerprints: int = option(
        10,
        help="steps between fingerprints of tables; 0: before the first and after the last step only",
        role="control",
        records=("fingerprints:table.*",),
        minimum=0,
        maximum=INT32,
    )


@dataclass
class TrainingConfig:
    """All options of `python -m miniapps.training` beside the common ones."""

    data: Learned = section(Learned)
    model: Model = section(Model)
    training: Training = section(Training)
    mesh: Mesh = section(Mesh)
    embeddings: Embeddings = section(Embeddings)
    seeds: Seeds = section(Seeds)
    evaluation: Evaluation = section(Evaluation)
    output: Output = section(Output)

    @property
    def meshed(self) -> bool:
        """Whether the model is partitioned over a mesh."""
        return bool(self.mesh.mesh) or self.model.name in PARTITIONED
