"""Times of all-reduces, beside the MPI library's own."""
