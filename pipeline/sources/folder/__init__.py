"""Source ``folder``: a tree of Markdown, HTML and text files, its readers in ``.access.yaml`` and ``groups.yaml``."""
