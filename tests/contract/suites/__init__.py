"""One suite per port. An adapter's test module subclasses it and says how the adapter is made; pytest does the rest."""
