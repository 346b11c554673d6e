"""Local services and the ``headwater`` command line. The top layer: everything may be imported here, nobody imports it."""
