"""Private servers of source systems, from the machine's own packages: for tests and ``make sources-check``."""
