"""Local services and the ``headwater`` command line. The top layer: it may import everything, nobody imports it."""
