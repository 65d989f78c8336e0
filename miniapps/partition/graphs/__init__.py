"""One step of training as a graph of operations: plain data, made simpler, and counted."""
