"""Pictures out: grids of samples, strips of denoising, time-lapses of training."""
