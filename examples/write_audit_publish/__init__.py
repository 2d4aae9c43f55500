"""Write, audit, publish: readers never see a table that its guardrails refuse."""
