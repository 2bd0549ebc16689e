"""What processes say to each other: flat, frozen, versioned shapes, and nothing that acts on them."""
