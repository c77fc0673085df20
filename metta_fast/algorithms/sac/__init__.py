"""SAC and TD3: learning from old transitions (sac.py has the flow). kind.py registers both."""
