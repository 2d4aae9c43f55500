"""What a worker shows of itself: logs, metrics and health."""
