"""Runs rules written in C on the CPU and the GPU: contract.h, the shells, threads and shared memory; for vector/."""
