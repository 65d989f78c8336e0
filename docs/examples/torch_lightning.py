"""Training by Lightning with sums of gradients in a chosen order, or with equal bits on any number of processes.

python torch_lightning.py RUN PROCESSES [hook | micro]
"""

import sys

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy

import fpna

way = sys.argv[3] if len(sys.argv) > 3 else "hook"
lightning.seed_everything(1, verbose=False)
torch.set_num_threads(1)
x = torch.randn(288, 64)
y = x.square().mean(dim=1, keepdim=True)
batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=48)


class Training(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
        self.automatic_optimization = way == "hook"

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def on_train_start(self):
        if way == "hook":  # not DDPStrategy(ddp_comm_hook=...), which Lightning ignores on a CPU
            self.trainer.strategy.model.register_comm_hook(None, fpna.ddp_hook(ordering="direct"))
        else:
            self.whole = fpna.accumulate(self.network, micro=6)

    def loss(self, x, y):
        return (self.network(x) - y).square().mean()

    def training_step(self, batch, _):  # every process reads the whole batch
        if way == "hook":
            return self.loss(*(each[self.global_rank :: self.trainer.world_size] for each in batch))
        self.optimizers().zero_grad()
        for x_part, y_part in self.whole.parts(*batch):
            self.loss(x_part, y_part).backward()  # manual_backward would let DistributedDataParallel add, too
        self.optimizers().step()


trainer = lightning.Trainer(
    accelerator="cpu", devices=int(sys.argv[2]), strategy=DDPStrategy(process_group_backend="gloo"), max_epochs=10,
    use_distributed_sampler=False, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)  # fmt: skip
training = Training()
trainer.fit(training, batches)

with fpna.record(sys.argv[1], problem={"way": way}) as r:
    r.step(60)
    for number, parameter in enumerate(training.parameters()):
        r.fingerprint("weights", parameter, block=number)
with torch.no_grad():
    loss = training.loss(x, y)
if trainer.is_global_zero:
    print(f"{way}: loss {loss:.4f} after 60 steps on {trainer.world_size} processes")
