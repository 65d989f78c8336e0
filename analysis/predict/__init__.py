"""Time per step, predicted and scored: choices import simulation, costs, reading, in order; scoring imports reading."""
