"""What applications that learn share: optimisers."""
