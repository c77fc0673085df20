"""Steps environments of gymnax's interface, written in JAX, on the learner's device.

    rules.py     one environment: its reset, its step, how its episodes end
    programs.py  all environments as functions over arrays: begin, step, mark, refill
    unroll.py    short loops written out, so that a GPU runs few large kernels instead of many small ones
    pack.py      the many small arrays of a state as few
    source.py    calls the programs; tensors pass by dlpack
    spaces.py    describes an environment to the factory

Place in the flow: factory.py makes a source; tensor_vector.py writes rows from what it gives.
"""
