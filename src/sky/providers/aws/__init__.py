"""Machines of Amazon EC2, on demand and spot."""
