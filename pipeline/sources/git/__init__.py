"""Source ``git``: the pages of one branch of a repository, with the readers that its access files name."""
