"""Define tasks: the decorator, specs, guardrails, TaskDefs with drift, and discovery."""
