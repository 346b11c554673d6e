"""The read side: scope, retrieve, admit, fuse, and how fresh it all is."""
