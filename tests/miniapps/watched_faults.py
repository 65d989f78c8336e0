"""Faults in watched trainings: python -m tests.miniapps.watched_faults --cases 300 --seed 1

Each case trains one of six models twice, the second time with one fault, and compares the place that divergence names
with that of the fault."""

import argparse
import json
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fpna
from analysis.divergence.cause import cause
from analysis.divergence.compare import compare
from analysis.load.frames import load

STEPS = 3


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(1, 4, 3), nn.Sequential(Residual(), Residual())
        self.head = nn.Linear(4 * 36, 3)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x.reshape(-1, 1, 8, 8))).flatten(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.cell(x.reshape(-1, 8, 8))[0][:, -1])


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.encoder(x.reshape(-1, 8, 8)).mean(1))


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.head = (
            nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 16)),
            nn.Linear(16, 3),
        )

    def forward(self, x):
        return self.head(checkpoint(self.inside, x, use_reentrant=False))


class Shared(nn.Module):
    """One module is called twice, one never, one in place."""

    def __init__(self):
        super().__init__()
        self.enter, self.twice, self.never = nn.Linear(64, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.inplace, self.head = nn.ReLU(inplace=True), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.inplace(self.twice(torch.tanh(self.twice(self.enter(x))))))


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(64, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.2), nn.Linear(16, 3)),
    "images": Images, "recurrent": Recurrent, "attends": Attends, "recomputed": Recomputed, "shared": Shared,
}  # fmt: skip
UNCALLED = ("never", "out_proj")  # attention takes the weights of its last layer without calling it
KINDS = ("weight", "gradient", "accumulated", "activation", "batch", "random")


def flip(tensor, draw):
    """Change a bit of one element."""
    numbers = tensor.detach()
    at = tuple(draw.randrange(n) for n in numbers.shape)
    numbers[at] = (numbers[at].reshape(1).view(torch.int32) ^ (1 << draw.randrange(8, 23))).view(
        torch.float32
    )[0]


def train(out, name, kind=None, draw=None, when=0):
    """Train a model, with a fault of a `kind` in step `when`; the place of the fault: a module or a parameter."""
    torch.manual_seed(1)
    model = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters())
    where, now = "", [0]
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad and "never" not in n]
    if kind in ("weight", "gradient", "accumulated"):
        where, parameter = draw.choice(trained)
    if kind == "gradient":  # as backward computes it

        def strike(gradient):
            changed = gradient.clone()
            if now[0] == when:
                flip(changed, draw)
            return changed

        parameter.register_hook(strike)
    if kind == "activation":
        leaves = [(n, m) for n, m in model.named_modules() if not list(m.children())]
        where, module = draw.choice([(n, m) for n, m in leaves if not n.endswith(UNCALLED)])

        def strike_output(module, args, output):
            if now[0] != when or torch._C._current_graph_task_id() != -1:
                return output
            changed = (output[0] if isinstance(output, tuple) else output).clone()
            flip(changed, draw)
            return (changed, *output[1:]) if isinstance(output, tuple) else changed

        module.register_forward_hook(strike_output)
    with fpna.record(out, name=name) as r:
        fpna.watch(model, r, optimizer=optimizer, every=1)
        for step in range(1, STEPS + 1):
            now[0] = step
            r.step(step)
            x, y = torch.randn(6, 64), torch.randint(0, 3, (6,))
            if step == when and kind == "batch":
                flip(x, draw)
            if step == when and kind == "random":
                torch.rand(1)
            if step == when and kind == "weight":
                flip(parameter, draw)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            if step == when and kind == "accumulated":
                flip(parameter.grad, draw)
            optimizer.step()
    return where


def judged(a, b):
    """(kind, name, step) of the cause of the first difference of two runs; None where they are equal."""
    frames = load([a, b])
    runs = [(str(row.run), int(row.repeat)) for row in frames.runs.itertuples()]
    comparison = compare(frames, *runs)
    found = cause(frames, comparison)
    return found and (found.kind, found.name, found.at.step)


def right(kind, where, found, when):
    """Whether the answer is that of the fault: "right", "wrong", or "masked" where no record differs."""
    if found is None:
        return "masked"
    said, name, step = found
    module = where.rpartition(".")[0]
    if module.endswith(UNCALLED):  # its caller stands for it
        module = module.rpartition(".")[0]
    expected = {
        "weight": said == "local kernel" and (f"of {module} (" in name or f" {where}" in name),
        "gradient": name.endswith(f"gradient of {where}") and "backward" in name,
        "accumulated": name.endswith(f"gradient of {where}") and "between" in name,
        "activation": f"of {where} (" in name,
        "batch": said == "input",
        "random": said == "random state",
    }
    return "right" if step == when and expected[kind] else "wrong"


def case(seed, folder, clean):
    """(model, kind, verdict on the answer, the answer) of one drawn fault."""
    draw = random.Random(seed)
    name, kind, when = draw.choice(list(MODELS)), draw.choice(KINDS), draw.randint(1, STEPS)
    if name not in clean:
        clean[name] = folder / name
        train(clean[name], name)
    out = folder / f"fault-{seed}"
    where = train(out, name, kind, draw, when)
    found = judged(clean[name], out)
    shutil.rmtree(out)
    return name, kind, right(kind, where, found, when), (where, when, found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    told = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        clean = {}
        for number in range(args.cases):
            seed = args.seed * 100_000 + number
            name, kind, verdict, answer = case(seed, Path(scratch), clean)
            told[f"{kind}: {verdict}"] += 1
            if verdict != "right":
                print(seed, name, kind, verdict, *answer, flush=True)
    print(json.dumps(dict(sorted(told.items()))))


if __name__ == "__main__":
    main()
