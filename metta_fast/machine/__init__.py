"""Reads the machine: cores, memory, GPUs, process ages; imported by almost every other folder."""
