"""Makes the optimizers: Adam, AdamW, Muon."""
