"""Rows as verbs and loops need them: one module per noun. Reading, and the writes that move no state."""
