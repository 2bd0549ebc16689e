"""Each thing that can be asked for, once: intent in, one transaction, nothing outside touched."""
