"""A module that makes an environment as PettingZoo's own do."""


def env(**keys):
    from pettingzoo.classic.rps.rps import raw_env

    return raw_env(**keys)
