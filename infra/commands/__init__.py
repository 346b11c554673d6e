"""The groups of ``headwater``'s commands, one file each; every file has ``register(app)``."""
