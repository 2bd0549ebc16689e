"""Machines that are process groups on this computer."""
