"""The release, written down once: the package, the daemon, the agent and the documents read it from here."""

VERSION = "0.1.0"
CLIENT_RELEASE = "0.11.2"
"""The release of the published client library `skyward` whose protocol face 1 speaks."""
