"""The common parts of learning applications: samples, gradients, optimisers, the course of steps. Contains no model."""
