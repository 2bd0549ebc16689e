"""Machines of one's own, reached over SSH."""
