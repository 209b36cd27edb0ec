"""One contract suite per port; each adapter's test module subclasses it and creates the adapter."""
