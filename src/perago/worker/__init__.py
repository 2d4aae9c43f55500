"""The worker: polls Conductor, runs attempts, reports them."""
