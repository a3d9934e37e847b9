"""The mathematics: noise schedules, targets and losses, timesteps, noise, samplers."""
