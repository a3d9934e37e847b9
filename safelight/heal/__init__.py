"""What is done to a sick run: when, what it changes, and the journal that says so. It decides; `train/healer.py` acts.

Everything here is plain Python. What an act changes is a pure function of the config, the journal and the step.
"""
