"""Tiny tasks that a trainer must solve by its defaults, each with one thing that can go wrong.

    metta-fast train env=metta_fast.envs.sanity.bandit:make trainer.total_timesteps=50000

    bandit    ten arms, one step: rewards alone, nothing to see
    target    continuous actions with bounds that are not −1 and 1, one step
    copy      several discrete branches of different sizes, one step
    catch     a ball falls on an image of 84 × 84 pixels: needs convolutions
    cue       something to remember for eight steps: needs policy=lstm or policy=mingru
    parts     choices and numbers in one action, a Dict of nested parts, one step
    legal     two of twenty choices are legal, as an action mask says
    tour      a knight's tour: none to eight of a hundred moves are legal, and an illegal one ends the episode

They are ordinary Gymnasium environments and get no settings of their own. docs/learning.md has their scores.
"""
