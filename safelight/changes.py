"""What a resume finds changed: settings, images, environment; shown, and refused where the run would mean another."""

from __future__ import annotations

from collections.abc import Callable

from safelight.checkpoints.compatibility import environment_changes
from safelight.checkpoints.snapshot import Loaded
from safelight.config import Config
from safelight.config.continuation import SAME_BITS, SAME_MEANING, settings_affecting_result
from safelight.config.resolve import difference
from safelight.data.images import Images
from safelight.errors import UsageError
from safelight.run import RunFolder

Say = Callable[[str], None]


def check_changes(old: Config, new: Config, force: bool, say: Callable[[str], None]) -> None:
    changes = difference(old, new)
    for key, (before, after) in changes.items():
        say(f"Changed: {key} from {before} to {after}")
    meaning = [key for key in changes if key not in SAME_BITS | SAME_MEANING]
    if meaning and not force:
        raise UsageError(
            f"{', '.join(meaning)} would change what this run means: its steps so far were trained differently. "
            "Add --force to change it anyway, or start a new run."
        )
    if changes.keys() & SAME_MEANING:
        say("The run continues with the same meaning, but no longer to the same bytes.")


def check_data(folder: RunFolder, images: Images, force: bool) -> None:
    before = folder.status().get("data", {}).get("fingerprint")
    if before is not None and before != images.fingerprint and not force:
        raise _other_images(str(folder.path), images, str(before))


def _other_images(what: str, images: Images, before: str) -> UsageError:
    return UsageError(
        f"The images are not those that {what} was trained on ({len(images):,} now, fingerprint "
        f"{images.fingerprint[:12]} instead of {before[:12]}). Add --force to continue with them, or start a new run."
    )


def check_origin(loaded: Loaded, old: Config, config: Config, images: Images, force: bool, say: Say) -> bool:
    """Compares with what the checkpoint says it was trained with: config.yaml and run.json can be edited, lost or
    damaged without a trace. Whether a difference that changes the run was accepted."""
    origin = loaded.state.get("origin")
    if not isinstance(origin, dict):
        return False  # of a version that did not write it down
    then, now, changed = origin.get("settings"), settings_affecting_result(config), difference(old, config)
    then = then if isinstance(then, dict) else {}
    changes = {key: (then[key], now[key]) for key in now if key in then and then[key] != now[key]}
    for key, (before, after) in changes.items():
        if key not in changed:
            say(f"Changed since the checkpoint, in config.yaml: {key} from {before} to {after}")
    meaning = [key for key in changes if key not in SAME_MEANING]
    if meaning and not force:
        raise UsageError(
            f"{', '.join(meaning)} in config.yaml is not what {loaded.path} was trained with. Put it back, or add "
            "--force to continue with it."
        )
    other_images = origin.get("images") not in (None, images.fingerprint)
    if other_images and not force:
        raise _other_images(str(loaded.path), images, str(origin["images"]))
    return bool(meaning) or other_images


def check_environment(loaded: Loaded, config: Config, say: Callable[[str], None]) -> None:
    without = () if config.train.shards is None else ("processes",)  # any number of them gives the same bytes
    if other := environment_changes(loaded, without):
        say(f"Another environment than at the checkpoint ({'; '.join(other)}): the bytes may differ.")
