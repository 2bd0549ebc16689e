"""Clusters of a SkyPilot API server as machines. Start reading at ``provider``."""
