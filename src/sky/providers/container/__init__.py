"""Machines that are containers of an engine, here or elsewhere."""
