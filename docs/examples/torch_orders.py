"""What orders of addition do to a lookup table that learns: gradients in five orders of arrival, and in none.

python torch_orders.py
"""

import torch

import fpna.torch

generator = torch.Generator().manual_seed(1)
index = torch.randint(0, 50, (20_000,), generator=generator)
wanted = torch.randn(20_000, 8, generator=generator)


def trained(order, permutation):
    """The table after ten steps."""
    table = torch.zeros(50, 8, requires_grad=True)
    for _ in range(10):
        rows = fpna.torch.embedding(index[permutation], table, order=order)
        rows.backward((rows - wanted[permutation]).detach())
        with torch.no_grad():
            table -= 0.001 * table.grad
            table.grad = None
    return table.detach()


def different(tables):
    """How many of them have bits of their own."""
    return len({table.numpy().tobytes() for table in tables})


ascending = torch.arange(len(index))
permutations = [torch.randperm(len(index), generator=generator) for _ in range(5)]
arrivals = [trained(f"emulated:{seed}", ascending) for seed in range(5)]
print(f"{different(arrivals)} tables of 5 orders of arrival")
for order in ("sorted", "exact"):
    tables = [trained(order, permutation) for permutation in permutations]
    print(f"{different(tables)} tables of 5 permutations, {order}")
