"""What a task author writes, and what Perago reads from it."""
