"""Real source systems, played through the whole product: what people do there must show in what each may find."""
