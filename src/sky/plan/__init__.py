"""Deciding: pure functions from a snapshot and a moment to actions. No I/O, no clock."""
