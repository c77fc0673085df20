"""Charts of measured speeds (needs matplotlib); imported by bench/main.py and bench/gpu/."""
