"""The workspace transaction, free of any server: identities, fences, plans and the life cycle."""
