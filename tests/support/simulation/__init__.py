"""The real protocol code over the in-memory ports, under a scheduler that owns every choice."""
