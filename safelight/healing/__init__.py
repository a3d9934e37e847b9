"""What is done to a sick run: when, what it changes, the journal that says so, and the hand that does it.

What an act changes is a pure function of the config, the journal and the step.
"""
