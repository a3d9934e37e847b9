"""Commands as people write them for other trainers."""

from __future__ import annotations

import shlex
from dataclasses import fields

import pytest

from safelight.cli import main
from safelight.cli.flags.options import config_from
from safelight.cli.train import Command
from safelight.config.translation import translate
from safelight.errors import UsageError

FLAGS = {field.name for field in fields(Command)}

DIFFUSERS = (
    "--train_data_dir photos --resolution=64 --center_crop --random_flip --output_dir runs/mine --train_batch_size=16 "
    "--num_train_epochs 100 --use_ema --learning_rate=1e-4 --lr_warmup_steps=500 --mixed_precision=no "
    "--checkpointing_steps 500 --prediction_type epsilon --ddpm_beta_schedule linear"
)
KOHYA = "--train_data_dir photos --max_train_steps 400 --save_every_n_epochs 2 --mixed_precision bf16 --max_grad_norm 1"
LUCIDRAINS = "photos --train-lr 8e-5 --train-num-steps 700000 --ema-decay 0.995 --timesteps 1000 --num-samples 25"
LIGHTNING = "photos --max_epochs 10 --precision 16-mixed --gradient_clip_val 0.5 --default_root_dir runs/mine"
ULTRALYTICS = "photos --imgsz 64 --batch 16 --epochs 100 --lr0 0.01 --lrf 0.01 --workers 8 --save_period 5 --half False"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (DIFFUSERS, "photos --image-size 64 --set data.flip=true --run runs/mine --batch-size 16 --epochs 100 "
         "--lr 1e-4 --set optimizer.warmup=500 --precision fp32 --checkpoint-every 500 "
         "--set diffusion.prediction=epsilon --set diffusion.schedule=linear"),
        (KOHYA, "photos --steps 400 --checkpoint-every 2ep --precision bf16 --set clipping.limit=1"),
        (LUCIDRAINS, "photos --lr 8e-5 --steps 700000 --set ema.decay=0.995 --set diffusion.timesteps=1000 "
         "--set sample.count=25"),
        (LIGHTNING, "photos --epochs 10 --precision fp16 --set clipping.limit=0.5 --run runs/mine"),
        (ULTRALYTICS, "photos --image-size 64 --batch-size 16 --epochs 100 --lr 0.01 --set optimizer.floor=0.01 "
         "--workers 8 --checkpoint-every 5ep"),
        ("photos --lr 1 --heal --set a.b=--amp -- --amp", "photos --lr 1 --heal --set a.b=--amp -- --amp"),
        ("--stepz 5 --learning-rate", "--stepz 5 --learning-rate"),
    ],
)  # fmt: skip
def test_a_command_of_another_trainer(line: str, expected: str) -> None:
    ours, notes = translate(shlex.split(line), FLAGS)
    assert ours == shlex.split(expected)
    assert bool(notes) == (line != expected)


def test_what_was_read_is_said() -> None:
    _, notes = translate(["--learning-rate", "1e-4", "--use_ema", "--half", "False"], FLAGS)
    assert notes == [
        "Read --learning-rate as --lr 1e-4.",
        "Left out --use_ema: EMA weights are always kept, and samples are drawn from them.",
        "Left out --half.",
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--gradient_accumulation_steps 4", "--batch-size 64 --accumulate 4"),
        ("--amp", "--precision bf16"),
        ("--resume_from_checkpoint latest", "safelight resume RUN"),
        ("--devices=2", "accelerate launch or torchrun"),
    ],
)
def test_what_has_another_meaning_is_answered(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=words):
        translate(shlex.split(line), FLAGS)
    assert main(["train", *shlex.split(line)]) == 2
    assert "There is no --" in capsys.readouterr().err


def test_other_commands_keep_their_words() -> None:
    assert translate(["--amp"], {"run", "json"}) == (["--amp"], [])


def test_the_line_becomes_a_config() -> None:
    import tyro

    ours, _ = translate(shlex.split(DIFFUSERS), FLAGS)
    config = config_from(tyro.cli(Command, args=ours))
    assert (config.data.source, config.data.image_size, config.data.flip) == ("photos", 64, True)
    assert (config.train.epochs, config.optimizer.lr, config.train.precision) == (100.0, 1e-4, "fp32")
