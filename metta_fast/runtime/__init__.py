"""Tools over torch for every algorithm: CUDA graphs, timers, random numbers; imported by policy/ and later folders."""
