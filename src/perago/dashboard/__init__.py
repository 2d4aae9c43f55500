"""The dashboard: pages about workers, workflows, attempts and branches, served on loopback."""
