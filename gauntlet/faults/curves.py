"""Faults that show in the curve of the loss, some in nothing else that a loop tells; and those that learn nothing."""

from __future__ import annotations

import torch

from gauntlet.fault import fault
from gauntlet.loop import Loop
from gauntlet.loop_parts import Batch, LoopParts
from gauntlet.options import FOREIGN

LONG = {"steps": 300}
SOMEBODY = "something else than the optimizer changes the weights"


@torch.no_grad()
def shake(run: LoopParts, size: float) -> None:
    """Adds noise to the weights, as long as a share of them."""
    for weight in run.weights():
        weight.add_(torch.randn_like(weight) * size * weight.square().mean().sqrt())


@fault("loss.spike", "optimizer.not-its-update", "loss.diverged", "loss.ruined", why=SOMEBODY, begin=0.6, once=True,
       bases=FOREIGN, shown=("loss",))  # fmt: skip
def kick_weights(run: LoopParts) -> None:
    """One update is followed by a kick of every weight."""
    update = run.update

    def kicked() -> None:
        update()
        shake(run, 2.0)

    run.update = kicked


@fault("loss.rise", "optimizer.not-its-update", "loss.ruined", "loss.diverged", "lr.too-high", "loss.spike",
       why=SOMEBODY, begin=0.4, bases=FOREIGN, shown=("loss",))  # fmt: skip
def shake_more_and_more(run: LoopParts) -> None:
    """Every update is followed by noise on the weights, a little more each time."""
    update, begin = run.update, run.step

    def shaken() -> None:
        update()
        shake(run, 4e-4 * (run.step - begin))

    run.update = shaken


@fault("loss.drop", "loss.not-of-prediction", "target.wrong", why="the loss is not that of the prediction any more",
       begin=0.5, bases=FOREIGN, shown=("loss",))  # fmt: skip
def leak_target(run: LoopParts) -> None:
    """Most of the target is in what is compared with it."""
    judge = run.loss_of
    run.loss_of = lambda pred, target, t: judge(0.1 * pred + 0.9 * target, target, t)


@fault("loss.drop", "timesteps.constant", "timesteps.gap", "timesteps.repeated", why="the task is that of one timestep",
       begin=0.5, bases=("mixture",), shown=("loss",))  # fmt: skip
def draw_most_noise_only(run: LoopParts) -> None:
    """Every timestep is the last one, at which the noise is nearly the input."""
    run.draw_t = lambda x0: torch.full((len(x0),), run.options.timesteps - 1)


@fault("loss.oscillation", "loss.drop", "timesteps.repeated", "timesteps.gap", begin=0.3, bases=("mixture",),
       why="timesteps come in turns", shown=("loss",))  # fmt: skip
def draw_in_turns(run: LoopParts) -> None:
    """A curriculum that never ends: for sixteen steps little noise, for sixteen steps much."""
    third = run.options.timesteps // 3
    run.draw_t = lambda x0: torch.randint(0, third, (len(x0),)) + (2 * third if run.step // 16 % 2 else 0)


@fault("lr.jump", "loss.oscillation", "lr.too-high", "loss.spike", "loss.diverged", why="the loss follows the rate",
       begin=0.3, bases=FOREIGN, shown=("loss",))  # fmt: skip
def swing_rate(run: LoopParts) -> None:
    """The rate is 40 times as high for eight steps, a fifth of it for sixteen, and so on."""
    rate, high = run.rate, 40 * run.options.lr
    run.rate = lambda step: high if step % 24 < 8 else 0.2 * rate(step)


@fault("loss.plateau", "loss.not-learning", "forward.not-the-formula", "forward.other-schedule", "forward.no-noise",
       why="what the network sees has nothing to do with what it is asked for", bases=FOREIGN, needs=LONG,
       shown=("loss",))  # fmt: skip
def show_fresh_noise(run: LoopParts) -> None:
    """The network is shown noise that is drawn for nothing else."""
    call = run.call_model
    run.call_model = lambda x_t, t, labels: call(torch.randn_like(x_t), t, labels)


@fault("loss.diverged", "target.wrong", "target.other-type", why="targets that grow are other targets", begin=0.3,
       bases=FOREIGN, shown=("loss",))  # fmt: skip
def grow_targets(run: LoopParts) -> None:
    """Targets that are made from earlier ones grow by five per cent at every step."""
    ask, begin = run.target_of, run.step
    run.target_of = lambda x0, noise, t: ask(x0, noise, t) * 1.05 ** (run.step - begin)


@fault("clipping.large-gradients", "loss.not-of-prediction", why="what is differentiated is a multiple of the loss",
       bases=FOREIGN, needs={"optimizer": "lion", "lr": 1e-3, "clip": None}, shown=("loss",), harms=False)  # fmt: skip
def multiply_loss(run: LoopParts) -> None:
    """What is differentiated is a hundred thousand times the loss."""
    assert isinstance(run, Loop)
    back = run.backward
    run.backward = lambda loss: back(1e5 * loss)


@fault("loss.ruined", "optimizer.not-its-update", "loss.diverged", "loss.rise", "loss.spike", why=SOMEBODY, begin=0.7,
       bases=("mixture",))  # fmt: skip
def keep_shaking(run: LoopParts) -> None:
    """Every update is followed by noise on the weights."""
    update = run.update

    def shaken() -> None:
        update()
        shake(run, 0.1)

    run.update = shaken


@fault("loss.drop", "data.shifted", "data.blank", "data.same-batch", "data.duplicates", why="they are other images",
       begin=0.5, bases=("plain",), needs={"prediction": "sample"})  # fmt: skip
def lose_images(run: LoopParts) -> None:
    """A decoder fails in silence: every image is grey, and images are what is predicted."""
    draw = run.draw_batch

    def blank() -> Batch:
        x0, labels = draw()
        return torch.zeros_like(x0), labels

    run.draw_batch = blank
