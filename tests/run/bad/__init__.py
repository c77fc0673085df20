"""Tables of mistakes for tests/run/bad_inputs.py."""
