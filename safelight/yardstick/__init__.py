"""What any denoiser of a data set can be compared with: closed-form ones, computed from the data itself."""
