"""DistributedDataParallel whose gradients are summed in a chosen order, over a chosen wire.

mpirun -n 4 python torch_ddp.py RUN [WIRE]
"""

import sys
import tempfile

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

import fpna

comm = MPI.COMM_WORLD
with tempfile.TemporaryDirectory() as folder:
    place = comm.bcast(folder, 0)
    store = dist.FileStore(f"{place}/store", comm.size)
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
    comm.Barrier()

torch.manual_seed(1)
torch.set_num_threads(1)
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
)
wire = sys.argv[2] if len(sys.argv) > 2 else "as is"
model.register_comm_hook(None, fpna.ddp_hook(ordering="direct", wire=wire))  # the one line that is added

generator = torch.Generator().manual_seed(100 + comm.rank)
x = torch.randn(256, 64, generator=generator)
y = x.square().mean(dim=1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(50):
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()

loss = comm.allreduce(loss.item()) / comm.size
with fpna.record(sys.argv[1], comm, problem={"steps": 50}, method={"wire": wire}) as r:
    r.step(50)
    for number, parameter in enumerate(model.parameters()):
        r.fingerprint("weights", parameter.detach().numpy(), block=number)
if comm.rank == 0:
    print(f"wire {wire}: loss {loss:.4f} after 50 steps on {comm.size} ranks")
dist.destroy_process_group()
