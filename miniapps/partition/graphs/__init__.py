"""One step of training as a graph of operations: plain data, its simplification, and its FLOPs."""
