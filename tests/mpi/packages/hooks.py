"""A small GPT-2 of transformers under DDP of accelerate or Lightning (argument), gradients added by `fpna.ddp_hook`.

Are the means of the first step those of both ranks' own gradients, and the weights equal on all ranks in the end?
"""

import hashlib
import os
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI
from transformers import GPT2Config, GPT2LMHeadModel

import fpna

comm = MPI.COMM_WORLD
os.environ |= {"RANK": str(comm.rank), "LOCAL_RANK": str(comm.rank), "WORLD_SIZE": str(comm.size),
               "LOCAL_WORLD_SIZE": str(comm.size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",
               "TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "0"}  # fmt: skip
folder = comm.bcast(tempfile.mkdtemp(), 0)
store = dist.FileStore(f"{folder}/store", comm.size)
dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
torch.manual_seed(1)
torch.set_num_threads(1)
sizes = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, **sizes))
tokens = torch.as_tensor(np.random.default_rng(comm.rank).integers(0, 64, (6, 4, 16)))
hook = fpna.ddp_hook(ordering="direct", accumulate="exact")

model(tokens[0], labels=tokens[0]).loss.backward()
own = [parameter.grad.numpy().astype(np.float64) for parameter in model.parameters()]
means = [sum(comm.allgather(each)) / comm.size for each in own]
model.zero_grad()
first = []


def keep_first():
    first.extend([] if first else [parameter.grad.numpy().copy() for parameter in model.parameters()])


if sys.argv[1] == "accelerate":
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    wrapped, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    wrapped.register_comm_hook(None, hook)
    for batch in tokens:
        optimizer.zero_grad()
        accelerator.backward(wrapped(batch, labels=batch).loss)
        keep_first()
        optimizer.step()
else:
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, _):
            return self.model(batch, labels=batch).loss

        def on_train_start(self):  # Lightning ignores DDPStrategy(ddp_comm_hook=...) on a CPU
            self.trainer.strategy.model.register_comm_hook(None, hook)

        def on_after_backward(self):
            keep_first()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        accelerator="cpu", devices=comm.size, strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(tokens, batch_size=None))
right = all(np.array_equal(got, mean.astype(np.float32)) for got, mean in zip(first, means, strict=True))
weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
everywhere = set(comm.allgather((right, weights)))
if comm.rank == 0:
    print("result", len(everywhere), right, weights)
