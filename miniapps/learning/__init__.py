"""What applications that learn share: samples, gradients, optimisers, the course of steps. It knows no model."""
