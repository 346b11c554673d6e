"""Model calls shared by requests: batches, threads, circuit breakers."""
