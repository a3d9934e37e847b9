"""The words of a reader of the field lead to the right place: a finding, a setting, a page."""

from __future__ import annotations

import pytest

from safelight import handbook
from safelight.cli import main
from safelight.config.search import search
from safelight.diagnosis.symptoms import find_symptoms

# word: (a finding among the first, a setting among the first, a page that is found). None: nothing is looked for there.
WORDS: dict[str, tuple[str | None, str | None, str | None]] = {
    "nan": ("LOS001", "train.max_refused", "symptoms"),
    "nan loss": ("LOS001", None, "symptoms"),
    "exploding gradients": ("LRA001", None, "symptoms"),
    "vanishing gradients": ("LEA004", None, "symptoms"),
    "gradient clipping": ("CLI001", "clipping.kind", "symptoms"),
    "max_grad_norm": (None, "clipping.limit", "commands"),
    "gradient accumulation": ("ACC001", "train.accumulate", "symptoms"),
    "gradient checkpointing": (None, "model.gradient_checkpointing", "training"),
    "mixed precision": ("PRE001", "train.precision", "symptoms"),
    "fp16": ("PRE001", "train.precision", "training"),
    "bf16": ("PRE001", "train.precision", "training"),
    "amp": ("PRE001", "train.precision", "commands"),
    "autocast": ("PRE001", "train.precision", "symptoms"),
    "grad scaler": ("PRE001", None, "symptoms"),
    "loss scale": ("PRE001", None, "training"),
    "ema": ("EMA001", "ema.kind", "training"),
    "ema decay": ("EMA001", "ema.decay", "symptoms"),
    "exponential moving average": (None, "ema.kind", None),
    "learning rate": ("LRA001", "optimizer.lr", "training"),
    "lr scheduler": (None, "optimizer.warmup", "commands"),
    "warmup": ("LRA006", "optimizer.warmup", "training"),
    "weight decay": (None, "optimizer.weight_decay", "config"),
    "batch size": (None, "train.batch_size", "config"),
    "epochs": (None, "train.epochs", "commands"),
    "early stopping": (None, "train.patience", None),
    "patience": (None, "train.patience", "config"),
    "plateau": ("LRA002", None, "symptoms"),
    "oscillation": ("LRA001", None, "symptoms"),
    "loss spikes": ("CLI002", None, "symptoms"),
    "divergence": ("LOS007", None, "heal"),
    "loss not decreasing": ("LEA002", None, "symptoms"),
    "overfitting": ("GEN004", None, "symptoms"),
    "underfitting": ("LEA005", None, "symptoms"),
    "capacity": ("LEA005", "model.widths", "symptoms"),
    "mode collapse": ("DIV001", None, "symptoms"),
    "low diversity": ("DIV001", None, "symptoms"),
    "missing classes": ("DIV002", None, "symptoms"),
    "class imbalance": ("DIV002", "data.balance", "symptoms"),
    "blurry": ("DIV004", None, "symptoms"),
    "artifacts": ("SAM003", None, "symptoms"),
    "memorization": ("GEN001", None, "symptoms"),
    "copies": ("GEN001", None, "evaluate"),
    "out of memory": ("SYS002", "model.gradient_checkpointing", "errors"),
    "oom": ("SYS002", "train.accumulate", "symptoms"),
    "slow training": ("SYS001", None, "symptoms"),
    "gpu idle": ("SYS001", None, "symptoms"),
    "num_workers": (None, "data.workers", None),
    "pin_memory": (None, "note", "commands"),
    "flash attention": (None, "note", None),
    "xformers": (None, "note", "commands"),
    "torch compile": (None, "model.compile", "config"),
    "channels last": (None, "model.channels_last", None),
    "dropout": (None, "model.dropout", "config"),
    "spectral norm": (None, "model.spectral_norm", "config"),
    "xavier": ("MOD003", "model.initialisation", "parts"),
    "initialization": ("MOD003", "model.initialisation", "symptoms"),
    "temperature": (None, "note", "commands"),
    "best checkpoint": (None, "checkpoint.keep_best", "evaluate"),
    "normalization": ("SCA001", None, "symptoms"),
    "noise schedule": ("SCH001", "diffusion.schedule", "symptoms"),
    "zero terminal snr": (None, "diffusion.zero_terminal_snr", "diffusion"),
    "min snr": (None, "diffusion.weighting", "diffusion"),
    "v prediction": (None, "diffusion.prediction", "diffusion"),
    "classifier-free guidance": ("CON001", "sample.guidance", "symptoms"),
    "timestep embedding": ("MOD007", None, "symptoms"),
    "augmentation": (None, "data.flip", "symptoms"),
    "color jitter": (None, "data.jitter", None),
    "horizontal flip": (None, "data.flip", None),
    "resolution": (None, "data.image_size", "commands"),
    "validation loss": ("GEN004", None, "symptoms"),
    "held out": ("GEN004", "data.held_out", "data"),
    "resume": ("CHK001", None, "commands"),
    "checkpoint": ("CHK001", "checkpoint.every", "run-folder"),
    "ddp": ("DST001", "train.weights", "scale"),
    "multi gpu": ("DST001", "train.weights", "symptoms"),
    "seed": (None, "train.seed", "exactness"),
    "tensorboard": (None, "log.to", "loggers"),
    "wandb": (None, "log.to", "loggers"),
    "fid": (None, "evaluate.every", "evaluate"),
    "ddim": (None, "sample.sampler", "diffusion"),
    "fine tuning": (None, "model.init", None),
    "duplicates": ("DAT002", None, "symptoms"),
    "dataloader": (None, None, "data"),
}
NEAR = 6  # places among which the right one has to be


def test_there_are_enough_words() -> None:
    assert len(WORDS) >= 60
    for place in range(3):
        assert sum(row[place] is not None for row in WORDS.values()) >= 40


@pytest.mark.parametrize("word", [word for word, row in WORDS.items() if row[0]])
def test_explain(word: str) -> None:
    first = [code for symptom in find_symptoms(word)[:2] for code in symptom.codes.split()[:NEAR]]
    assert WORDS[word][0] in first


@pytest.mark.parametrize("word", [word for word, row in WORDS.items() if row[1]])
def test_settings(word: str) -> None:
    found, wanted = search(word), WORDS[word][1]
    if wanted == "note":
        assert found.notes
    else:
        assert wanted in [setting.key for setting in found.settings[:NEAR]]


@pytest.mark.parametrize("word", [word for word, row in WORDS.items() if row[2]])
def test_docs(word: str) -> None:
    assert WORDS[word][2] in [page for page, _, _ in handbook.search(word)[: 2 * NEAR]]


@pytest.mark.parametrize("word", [word for word, row in WORDS.items() if None in row])
def test_a_command_that_knows_nothing_names_the_one_that_does(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    finding, setting, page = WORDS[word]
    for command, place in {"explain": finding, "settings": setting, "docs": page}.items():
        if main([command, word]) == 0:  # more is found there than the table asks for
            continue
        assert place is None
        said = capsys.readouterr().err
        if finding:
            assert f"`safelight explain {word}` finds" in said
        if setting:
            assert f"`safelight settings {word}` finds" in said or search(word).notes[0] in said
        if page:
            assert f"`safelight docs {word}` finds" in said


@pytest.mark.parametrize("command", ["explain", "settings", "docs"])
@pytest.mark.parametrize("word", ["xyzzy", "gradients of doom"])
def test_nothing_is_named_for_a_word_that_means_nothing(
    command: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, word]) == 2
    assert " finds " not in capsys.readouterr().err


@pytest.mark.parametrize("word", ["xyzzy", "gradients of doom"])
def test_a_word_that_means_nothing_leads_nowhere(word: str) -> None:
    assert (find_symptoms(word), search(word).settings, handbook.search(word)) == ([], [], [])
