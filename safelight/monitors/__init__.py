"""What every step is measured by: on the device, without waiting for it, and without touching anything."""
