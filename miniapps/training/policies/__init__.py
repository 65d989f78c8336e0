"""Who chooses the wires of gradients, and which step comes next."""
