"""Where the ranks of a run were, and what passed between nodes."""
