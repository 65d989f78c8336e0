"""Decisions about wires while a network learns: pure functions of what was measured, without MPI and without torch.

| module | decides or says |
|---|---|
| `curves` | how a learning curve goes on, and how sure that is |
| `layerwise` | the wire of each tensor: the fewest bytes at no more error than a reference (L-GreCo) |
| `adaprec` | which wire is trained next and for how long (AdaPrec), as a state machine that a training loop drives |
"""
