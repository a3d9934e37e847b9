"""Names of the field are recognised, and parts of a loss are not taken for it."""

from __future__ import annotations

import pytest

from safelight.diagnosis.logs.columns import best, is_part, role_of

ROLES = {
    "step": "step global_step trainer/global_step iteration iter Step _step train/global_step Iterations",
    "epoch": "epoch Epoch train/epoch Progress/kimg",
    "loss": "loss train_loss train/loss loss_step train_loss_step step_loss Loss/train loss/current trainLoss "
    "loss/average Loss/loss/mean train_loss_epoch mse run-1_loss diffusion_loss gen_loss",
    "validation loss": "val_loss eval_loss valid/loss test_loss validation_loss_epoch loss/val",
    "learning rate": "lr learning_rate lr-AdamW lr-Adam/pg1 lr/unet LearningRate optimizer/lr train/learning_rate",
    "gradient norm": "grad_norm train/grad_norm gradient_norm grad_2.0_norm_total gradNorm total_grad_norm",
    "loss scale": "loss_scale scaler amp/scale grad_scale scaler_scale",
    "EMA decay": "ema_decay ema/decay EMA-decay",
    "": "accuracy time grad_2.0_norm/layer1.weight lr-AdamW-momentum lr-AdamW-weight_decay fid Loss/loss/std "
    "loss__MIN lr_scheduler unet.grad_norm_layer3 gpu_mem samples_per_second",
}


@pytest.mark.parametrize(("role", "name"), [(role, name) for role, names in ROLES.items() for name in names.split()])
def test_roles(role: str, name: str) -> None:
    assert (role_of(name) or "") == role


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ("train_loss_epoch train_loss_step", "train_loss_step"),
        ("loss/average loss/current", "loss/current"),
        ("train/loss_vlb train/loss train/loss_simple_step", "train/loss_simple_step"),
        ("kl_loss loss", "loss"),
        ("loss_q0 loss_q1 loss", "loss"),
    ],
)
def test_the_loss_that_is_taken(names: str, first: str) -> None:
    assert best(names.split(), "loss")[0] == first


def test_steps_of_the_training_before_those_of_a_tool() -> None:
    assert best(["_step", "trainer/global_step"], "step") == ["trainer/global_step", "_step"]


def test_parts_of_a_loss() -> None:
    assert is_part("gen_loss")
    assert not is_part("train/loss_step")
