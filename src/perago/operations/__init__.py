"""What a command does, once: registration, fence, garbage collection, budget, local run."""
