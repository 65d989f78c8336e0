"""A step function of torch as a graph, and what such a step may not have."""
