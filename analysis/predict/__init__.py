"""Time per step, predicted before a run and scored after it."""
