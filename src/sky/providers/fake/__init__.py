"""Machines that exist only in memory and misbehave on request: for tests and simulations."""
