"""What drives the fleet: `embedded` in one process."""
