"""One revision a file, and its SQL beside it."""
