"""Stands in for pytorch-fid, which needs torchvision: only names that are imported."""
