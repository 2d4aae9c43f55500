"""The soak: a fleet of workers under random kills, freezes, restarts and network faults."""
