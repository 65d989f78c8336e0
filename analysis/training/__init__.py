"""Training, of runs that recorded accuracy and loss: accuracy over time, prices of wires, decisions, variance."""
