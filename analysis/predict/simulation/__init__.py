"""A program on other ranks: what is predicted, who waits for whom, and how sure that is."""
