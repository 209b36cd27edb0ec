"""Named faults: deliberate defects in the product, each of which a test must detect."""
