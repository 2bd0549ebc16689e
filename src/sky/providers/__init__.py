"""Where machines come from: one protocol, one package per kind, one conformance suite for all."""
