"""Chooses wires during training: pure functions of measurements, without MPI and without torch.

| module | contents |
|---|---|
| `curves` | predicts how a learning curve continues, with a standard deviation |
| `layerwise` | chooses the wire of each tensor: the fewest bytes at no more error than a reference (L-GreCo) |
| `adaprec` | chooses the next wire and its training time (AdaPrec): a state machine that a training loop drives |
"""
