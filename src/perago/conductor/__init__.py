"""Conductor: poll, lease, fence read, completion and TaskDefs, on the SDK's models and calls."""
