"""What stands behind the demonstration: its servers, its workers, and what it shows of them."""
