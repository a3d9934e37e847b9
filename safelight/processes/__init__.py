"""The processes of one run: their group and heartbeat, the reduction of gradients, sharded weights, restarts."""
