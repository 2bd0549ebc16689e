"""Face 1, the control plane: one module per noun, each a list of operations."""
