"""What is done to a run that goes wrong. What an act changes is a pure function of config, journal and step."""
