"""Text from a language model behind an OpenAI-compatible server. What it writes is never evidence."""
