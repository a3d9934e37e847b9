"""The store that torchrun keeps for its processes: where those of one start meet, and what earlier starts left."""

from __future__ import annotations

import json
import os
import secrets
import time
from datetime import timedelta

import torch.distributed as dist

POLL_SECONDS = 0.05


def agent_store() -> dist.Store | None:
    """It outlives the processes. None under other launchers, and where torchrun keeps its store to itself."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    client = dist.TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=30))
    return dist.PrefixStore("safelight", client)


def meet(store: dist.Store, rank: int, size: int, seconds: float) -> dist.Store:
    """A part of the store that only the processes of this start use.

    The store still holds the addresses of processes that are gone (pytorch #135712), and a launcher does not count the
    restarts of other machines (#108158). So every process brings a token of its own. The first process offers a name
    for the tokens that it finds, and another name whenever a token changes; it holds once all have accepted it."""
    token, until = secrets.token_hex(8), time.monotonic() + seconds
    keys = [f"token/{each}" for each in range(size)]
    store.set(keys[rank], token)
    name, offered = "", []
    while time.monotonic() < until:
        if rank == 0 and store.check(keys):
            tokens = [each.decode() for each in store.multi_get(keys)]
            if tokens != offered:
                name, offered = secrets.token_hex(8), tokens
                store.set("offer", json.dumps([name, tokens]))
            if store.check([f"{name}/accepted/{each}" for each in range(1, size)]):
                store.set(f"{name}/complete", "1")
        elif rank != 0 and store.check(["offer"]):
            name, offered = json.loads(store.get("offer"))
            if len(offered) == size and offered[rank] == token:
                store.set(f"{name}/accepted/{rank}", "1")
        if name and store.check([f"{name}/complete"]) and token in offered:
            return dist.PrefixStore(name, store)
        time.sleep(POLL_SECONDS)
    missing = [each for each in range(size) if not store.check([keys[each]])]
    raise RuntimeError(
        f"{len(missing)} of {size} processes did not come within {seconds:.0f} seconds."
        if missing
        else f"a process of an earlier start did not come again within {seconds:.0f} seconds."
    )
