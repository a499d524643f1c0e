"""What is stored: PostgreSQL, and the one guarded path that moves a status there."""
