"""Training under Accelerate with sums of gradients in a chosen order, or with equal bits on any number of processes.

accelerate launch --multi_gpu --num_processes 2 torch_accelerate.py RUN [hook | micro]
"""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.nn.parallel import DistributedDataParallel

import fpna

accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(split_batches=True))
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(288, 64)
y = x.square().mean(dim=1, keepdim=True)
batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=48)

way = sys.argv[2] if len(sys.argv) > 2 else "hook"
if way == "hook":
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    if isinstance(model, DistributedDataParallel):  # on one process, Accelerate does not wrap the model
        model.register_comm_hook(None, fpna.ddp_hook(ordering="direct"))
else:  # every process reads the whole batch, and the model is not wrapped
    optimizer = accelerator.prepare(optimizer)
    whole = fpna.accumulate(model, micro=6)

for _ in range(10):
    for batch in batches:
        optimizer.zero_grad()
        for x_part, y_part in whole.parts(*batch) if way == "micro" else [batch]:
            loss = (model(x_part) - y_part).square().mean()
            accelerator.backward(loss)
        optimizer.step()

network = accelerator.unwrap_model(model)
with fpna.record(sys.argv[1], problem={"way": way}) as r:
    r.step(60)
    for number, parameter in enumerate(network.parameters()):
        r.fingerprint("weights", parameter, block=number)
with torch.no_grad():
    loss = (network(x) - y).square().mean()
accelerator.print(f"{way}: loss {loss:.4f} after 60 steps on {accelerator.num_processes} processes")
accelerator.end_training()
