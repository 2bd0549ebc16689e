"""The release, written down once: the package, the daemon, the agent and the documents read it from here."""

VERSION = "0.1.0"
