"""Source ``folder``: a tree of files of all formats that are read; readers in ``.access.yaml`` and ``groups.yaml``."""
