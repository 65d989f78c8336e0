"""`fpna.watch`: its records of a model, the place where two trainings diverge, and models that are hard to watch."""

import warnings

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import fpna  # noqa: E402
from analysis.__main__ import main  # noqa: E402
from kernels.sizes import chosen  # noqa: E402
from miniapps.errors import UsageError  # noqa: E402
from miniapps.trace import read_run  # noqa: E402
from tests.miniapps.watched_faults import KINDS, MODELS, case, judged, train  # noqa: E402


def recorded(run):
    """Names of the fingerprints of rank 0, each once, in their order."""
    (trace,) = read_run(run)
    return list(dict.fromkeys(trace.names[n] for n in trace.tables["fingerprints"]["name"]))


def learn(out, model, steps=2, optimizer=True, batch=lambda: torch.randn(4, 64), **options):
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1) if optimizer else None
    with fpna.record(out, name="test") as r:
        watched = fpna.watch(model, r, optimizer=optimizer, **options)
        for step in range(1, steps + 1):
            r.step(step)
            loss = model(batch()).square().sum()
            loss.backward()
            if optimizer:
                optimizer.step()
    return watched


@pytest.mark.parametrize("seed", range(2 * len(KINDS)))
def test_a_fault_is_named(seed, tmp_path):
    """A few drawn cases; `python -m tests.miniapps.watched_faults` draws hundreds."""
    _, _, verdict, answer = case(31_000 + seed, tmp_path, {})
    assert verdict in ("right", "masked"), answer


@pytest.mark.parametrize("name", MODELS)
def test_the_same_training_twice_is_equal(name, tmp_path):
    for out in ("a", "b"):
        train(tmp_path / out, name)
    assert judged(tmp_path / "a", tmp_path / "b") is None


def test_records_stand_in_the_order_of_computation(tmp_path):
    learn(tmp_path / "a", nn.Sequential(nn.Linear(64, 5), nn.ReLU(inplace=True)), steps=1)
    names = [name.removesuffix(" by rank") for name in recorded(tmp_path / "a")]
    begin = names.index("model.random:torch")
    assert names[begin:] == [
        "model.random:torch", "model.data:0", "model.output:0 (Linear)", "model.output:1 (ReLU)", "model.loss:",
        "model.gradient of output:1 (ReLU)", "model.gradient of output:0 (Linear)", "model.gradient:0.bias",
        "model.gradient:0.weight", "model.gradient for update:0.weight", "model.gradient for update:0.bias",
    ]  # fmt: skip
    assert names[:begin] == ["model.weights:0.weight", "model.weights:0.bias"]


def test_nothing_stays_behind(tmp_path):
    model, plain = nn.Linear(64, 3), torch.autograd.backward
    learn(tmp_path / "a", model)
    assert torch.autograd.backward is plain
    assert not (model._forward_hooks or model._forward_pre_hooks or model.weight._post_accumulate_grad_hooks)
    model(torch.randn(2, 64)).sum().backward()  # no record, and no error


def test_every_and_modules_choose_what_is_recorded(tmp_path):
    model = nn.Sequential(nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 2))
    learn(tmp_path / "a", model, steps=7, every=3, modules="2")
    (trace,) = read_run(tmp_path / "a")
    assert set(trace.tables["fingerprints"]["step"]) == {0, 1, 3, 6}
    assert "model.weights before:2.weight" in recorded(tmp_path / "a")
    outputs = [name for name in recorded(tmp_path / "a") if "output" in name]
    assert {name.partition(":")[2].split()[0] for name in outputs} == {"2"}
    with pytest.raises(UsageError, match="every=0"):
        learn(tmp_path / "b", model, every=0)


def train_wide(out, off=(), **options):
    """Two steps of a wide model; the input has ones added at the places `off`."""
    torch.manual_seed(3)
    model, x = nn.Linear(64, 8), torch.randn(1024, 64)
    x.reshape(-1)[list(off)] += 1
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    with fpna.record(out, name="test") as r:
        fpna.watch(model, r, optimizer=optimizer, every=1, **options)
        for step in (1, 2):
            r.step(step)
            model(x).square().sum().backward()
            optimizer.step()


def sizes_of(out, name):
    """{column: value} of the first row of sizes of this name."""
    (trace,) = read_run(out)
    table = trace.tables["sizes"]
    row = next(i for i, n in enumerate(table["name"]) if trace.names[n].removesuffix(" by rank") == name)
    return {column: table[column][row].item() for column in table}


def test_a_sample_of_the_numbers_has_hashes_of_all(tmp_path, capsys):
    taken = set(chosen(1024 * 64, 16).tolist())
    outside = next(block for block in range(1024) if block not in taken) * 64
    train_wide(tmp_path / "a", sample=16)
    train_wide(tmp_path / "b", [outside], sample=16)
    train_wide(tmp_path / "c")
    one, other, whole = (sizes_of(tmp_path / run, "model.data:0") for run in "abc")
    assert one["sample"] == 16 and whole["sample"] == 1 and one["count"] == whole["count"] == 65536
    assert one["l1"] == other["l1"] and one["l1"] == pytest.approx(whole["l1"] / 16, rel=0.1)
    assert sizes_of(tmp_path / "a", "model.weights:weight")["sample"] == 1  # 512 numbers are taken whole
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 3
    text = capsys.readouterr().out
    assert "first at step 1, model.data:0 by rank" in text
    assert "0 units in the last place of the numbers (of a sample: one block of 64 numbers in 16)" in text
    assert "the other numbers were not measured" in text
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "c")]) == 0  # hashes are of all numbers
    assert main(["watched", str(tmp_path / "a"), str(tmp_path / "c")]) == 0
    assert "no difference" in capsys.readouterr().out


def test_sizes_of_different_samples_are_not_compared(tmp_path, capsys):
    train_wide(tmp_path / "a", sample=16)
    train_wide(tmp_path / "b", [0], sample=8)
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 3
    assert "differ in length, type or sample" in capsys.readouterr().out


@pytest.mark.parametrize("sample", [0, -3, 1.5, "all", 2**31])
def test_an_impossible_sample_is_refused(sample, tmp_path):
    with pytest.raises(UsageError, match="sample="):
        learn(tmp_path / "a", nn.Linear(64, 3), sample=sample)


def test_a_difference_between_recorded_steps_is_not_blamed_on_one_of_them(tmp_path):
    def train(out, wrong):
        torch.manual_seed(3)
        model = nn.Linear(64, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with fpna.record(out, name="test") as r:
            fpna.watch(model, r, optimizer=optimizer, every=4)
            for step in range(1, 9):
                r.step(step)
                model(torch.ones(4, 64)).square().sum().backward()
                if wrong and step == 2:
                    model.weight.grad[0, 0] += 1
                optimizer.step()

    train(tmp_path / "a", False)
    train(tmp_path / "b", True)
    kind, name, step = judged(tmp_path / "a", tmp_path / "b")
    assert (kind, step) == ("contributions or order", 4) and name.startswith("an earlier step")


def test_a_model_that_changes_is_watched_as_it_is(tmp_path):
    model = nn.Sequential(nn.Linear(64, 5), nn.ReLU())
    with fpna.record(tmp_path / "a", name="test") as r:
        fpna.watch(model, r, every=1)
        for step in range(1, 4):
            r.step(step)
            if step == 2:
                model.append(nn.Linear(5, 3))
            if step == 3:
                model[0].weight.requires_grad_(False)
            model(torch.randn(4, 64)).sum().backward()
    (trace,) = read_run(tmp_path / "a")
    table = trace.tables["fingerprints"]
    steps = {}
    for name, step in zip(table["name"], table["step"], strict=True):
        steps.setdefault(trace.names[name].removesuffix(" by rank"), set()).add(int(step))
    assert steps["model.output:1 (ReLU)"] == {1, 2, 3} and steps["model.output:2 (Linear)"] == {2, 3}
    assert steps["model.gradient:2.weight"] == {2, 3} and steps["model.gradient:0.weight"] == {1, 2}


def test_a_sparse_gradient_is_recorded_by_values_and_indices(tmp_path):
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with fpna.record(tmp_path / "a", name="test") as r:
        fpna.watch(model, r, optimizer=optimizer)
        r.step(1)
        model(torch.tensor([1, 1, 3])).sum().backward()
        optimizer.step()
    names = [name.removesuffix(" by rank") for name in recorded(tmp_path / "a")]
    assert {"model.gradient:0.weight, values", "model.gradient for update:0.weight, indices"} <= set(names)


def test_what_has_no_bits_is_named_and_the_training_goes_on(tmp_path):
    class Csr(nn.Module):
        def forward(self, x):
            return x.to_sparse_csr()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Csr()

        def forward(self, x):
            return self.inner(x).to_dense().sum()

    with pytest.warns(UserWarning, match=r"model.output:inner \(Csr\) is not recorded"):
        learn(tmp_path / "a", Model(), optimizer=False, batch=lambda: torch.ones(3, 3, requires_grad=True))


def test_outputs_of_other_kinds(tmp_path):
    class Answers(nn.Module):
        def forward(self, x):
            return {"y": x * 2, "rest": (x + 1, "text", None, [x - 1])}

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.answers = Answers()

        def forward(self, x):
            found = self.answers(x)
            return found["y"] + found["rest"][0]

    learn(tmp_path / "a", Model(), optimizer=False, batch=lambda: torch.randn(4, 3, requires_grad=True))
    names = [name.removesuffix(" by rank") for name in recorded(tmp_path / "a")]
    assert [name for name in names if name.startswith("model.output:")] == [
        "model.output:answers (Answers).y", "model.output:answers (Answers).rest[0]",
        "model.output:answers (Answers).rest[3]", "model.output:model (Model)",
    ]  # fmt: skip


def test_without_gradients_and_in_inference_mode(tmp_path):
    model = nn.Sequential(nn.Linear(64, 5), nn.ReLU())
    with fpna.record(tmp_path / "a", name="test") as r:
        fpna.watch(model, r)
        with torch.no_grad():
            model(torch.ones(2, 64))
        with torch.inference_mode():
            model(torch.ones(2, 64))
    (trace,) = read_run(tmp_path / "a")
    outputs = [n for n in trace.tables["fingerprints"]["name"] if trace.names[n].startswith("model.output:1")]
    assert len(outputs) == 2


def test_a_compiled_module_is_watched_from_outside(tmp_path):
    model = nn.Sequential(
        nn.Linear(64, 8), torch.compile(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), backend="eager")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learn(tmp_path / "a", model)
    names = [name for name in recorded(tmp_path / "a") if name.startswith("model.output:")]
    assert [name.split(":")[1].split()[0] for name in names] == ["0", "1"]


def test_the_number_of_threads_is_named_where_two_runs_differ_in_it(tmp_path, capsys):
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            learn(tmp_path / f"{threads}", nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32)), steps=1)
    finally:
        torch.set_num_threads(before)
    assert main(["divergence", str(tmp_path / "1"), str(tmp_path / "2")]) in (0, 3)
    assert "torch.threads is 1 in 1:0, 2 in 2:0" in capsys.readouterr().out
