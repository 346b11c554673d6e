"""What words, numbers and units mean, for what compares statements: the check of support, and extractive answers."""
