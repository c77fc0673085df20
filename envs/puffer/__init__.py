"""Steps PufferEnvs of PufferLib 3, native and emulated, whose buffers are in our slab."""
