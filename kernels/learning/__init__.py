"""Chooses wires during training: pure functions of measurements, without MPI; only `bayesian` needs torch.

| module | contents |
|---|---|
| `curves` | predicts how a learning curve continues, with a standard deviation |
| `bayesian` | the same for several curves at once, by a Bayesian neural network (Klein et al. 2017) |
| `layerwise` | chooses the wire of each tensor: the fewest bytes at no more error than a reference (L-GreCo) |
| `trials` | tries wires, and chooses the next wire and its training time: a state machine that a training loop drives |
| `adaprec` | `trials` by predicted accuracies, as Oyama's AdaPrec |
| `cautious` | `trials` by held-out losses, in equal time; goes back when training gets worse |
"""
