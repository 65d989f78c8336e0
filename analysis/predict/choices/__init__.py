"""What to choose, by predictions: guarantees, orderings, machines, shardings."""
