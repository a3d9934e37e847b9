"""Logs that others wrote: CSV, JSON, TensorBoard, Weights & Biases, text. One file for each format."""
