"""Steps MettaGrid's own simulator, the package `mettagrid`, with its buffers in our slab. docs/mettagrid.md.

    config.py    env.recipe, env.kwargs, env.params ──► MettaGridConfig
    recipes.py   configurations by name
    factory.py   MettaGridConfig ──► spec and batches
    batch.py     simulations ──► rows
    game.py      one environment: a simulation for each episode
    replay.py    an episode ──► pictures, and a replay for the package's viewer
    maps.py      maps that depend on the seed alone
    package.py   whether the package is installed, and its version

The package is imported when an environment is made: nothing else here needs it.
"""
