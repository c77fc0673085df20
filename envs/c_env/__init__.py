"""Makes environments of one's own in C: a folder with a rules header and a `CEnv` (docs/c_environments.md)."""
