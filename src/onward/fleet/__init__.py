"""What can be done with a fleet: one use case a module, named by its verb."""
