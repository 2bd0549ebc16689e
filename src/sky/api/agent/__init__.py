"""The inner face: what the agents on the nodes speak to."""
