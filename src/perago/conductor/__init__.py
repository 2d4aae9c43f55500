"""Conductor: poll, lease, fence read, completion and TaskDefs, through its REST API."""
