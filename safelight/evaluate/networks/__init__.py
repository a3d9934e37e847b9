"""The networks whose features are compared: their layers, where their weights come from, how pixels reach them."""
