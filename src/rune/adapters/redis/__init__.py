"""Redis: state by scripts, queue by streams."""
