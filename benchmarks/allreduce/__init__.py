"""What all-reduces cost, beside the library's own."""
