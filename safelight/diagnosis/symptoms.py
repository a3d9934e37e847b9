"""Symptoms in the reader's words, and the findings that may be behind each of them, the most likely first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from safelight.diagnosis.rule import Rule
from safelight.diagnosis.rules import RULES
from safelight.words import begins_a_word, plain, stem


@dataclass(frozen=True, slots=True)
class Symptom:
    """One row of docs/symptoms.md."""

    name: str
    words: str
    """What else people call it, with | between."""
    shows: str
    """Where Safelight shows it."""
    codes: str
    """The codes of the findings, with spaces between; none if no rule is about it."""
    do: str

    @property
    def rules(self) -> list[Rule]:
        by_code = {rule.code: rule for rule in RULES}
        return [by_code[code] for code in self.codes.split()]

    def to_json(self) -> dict[str, Any]:
        return {"symptom": self.name, "shows": self.shows, "codes": self.codes.split(), "do": self.do}


SYMPTOMS: tuple[Symptom, ...] = (
    Symptom(
        "NaN loss",
        "nan|nan loss|loss is nan|inf|infinity|not finite|nonfinite|nan gradients|nan gradient|overflow|underflow",
        "`update/refused`, the event `refused` with the images of that step, and the layer where it began",
        "LOS001 MOD010 LOS004 DAT001 PRE001 PRE002 LRA001 SCH003",
        "The update is refused, and the weights stay finite. Lower the learning rate, lengthen the warmup, use bf16 "
        "instead of fp16. Check a loss of your own for log(0) and divisions by zero.",
    ),
    Symptom(
        "Exploding gradients",
        "exploding|exploding gradients|gradient explosion|large gradients|huge gradient norm|gradient norm too high",
        "`gradient/norm`, `gradient/limit` and `gradient/kept` at every step",
        "LRA001 LOS007 MOD003 LRA006 CLI002 CLI003 CLI001 ACC001",
        "Keep gradient clipping on (`clipping.kind`), lower the learning rate, lengthen `optimizer.warmup`.",
    ),
    Symptom(
        "Vanishing gradients",
        "vanishing|vanishing gradients|gradients vanish|zero gradients|gradient is zero|dead relu|dead units",
        "`gradient/part` and `gradient/zero` by part of the network",
        "LEA004 MOD001 MOD005 MOD002 LOS002 OPT007",
        "Look at the part that the finding names: its initialisation, skip connections, a detach.",
    ),
    Symptom(
        "Loss does not fall",
        "loss does not fall|loss not decreasing|loss does not decrease|not learning|loss stuck|learns nothing|"
        "not converging|poor convergence",
        "skill at every checkpoint: 0 knows only the mean image, 1 is the best linear filter",
        "LEA002 LRA002 LRA003 OPT001 OPT003 SCA001 SCA002 TAR001 TAR002 TAR004 TAR005 FOR001 MOD007 LRA001 LOS003",
        "Read the first finding of `safelight doctor`: the cause is usually scale, target, optimizer or learning rate.",
    ),
    Symptom(
        "Plateau",
        "plateau|loss plateau|levelled off|stagnation|converged|convergence|has it converged|overtrained",
        "`Progress:` of `safelight doctor`: per band of noise levels, whether the loss still falls and since "
        "when it is level",
        "LRA002 CUR005 LEA005 LEA003 LRA004 LEA002 MOD006 OPT006",
        "If the skill is good, the run is done: stop it (`train.patience`). If the plateau comes early, raise the "
        "learning rate or use a larger model.",
    ),
    Symptom(
        "Oscillating loss",
        "oscillation|oscillates|oscillating loss|unstable|instability|unstable training|noisy loss|loss jumps",
        "`loss/whitened`, which does not depend on the drawn timesteps; the raw loss of a batch mostly shows "
        "which timesteps were drawn",
        "LRA001 CUR004 LRA005 LRA006 CLI002 MOD009 DAT004 ACC002",
        "Lower the learning rate, lengthen the warmup. A noisy raw loss alone is normal for diffusion.",
    ),
    Symptom(
        "Spikes of the loss",
        "spike|spikes|loss spike|loss spikes|bad batch|outlier|sudden drop",
        "a finding with the step, and an event with the images of that step",
        "CLI002 CUR001 PRE004 LRA001 LRA006 DAT001",
        "Keep clipping on; look at the images that the finding names. `--heal` redoes such steps.",
    ),
    Symptom(
        "Loss grows",
        "diverged|divergence|diverges|loss increases|loss goes up|loss grows|loss explodes",
        "`loss/whitened` and the loss of the fixed set (`probe/raw`)",
        "LOS007 CUR003 LRA001 LEA001 GEN004 LOS003 OPT005 LRA005",
        "Go back to a checkpoint with a lower rate; `--heal` does that automatically.",
    ),
    Symptom(
        "Learning rate too high or too low",
        "learning rate|lr too high|lr too low|wrong learning rate|lr finder|learning rate finder|warmup",
        "the preflight tries the rate on real steps; `optimizer/lr` at every step",
        "LRA001 LRA002 LRA006 LRA003 LRA004 LRA007 LRA005",
        "Take the rate that the finding names.",
    ),
    Symptom(
        "Out of memory",
        "oom|out of memory|cuda out of memory|memory|vram|gpu memory|memory usage",
        "exit code 4 with what to try; `safelight estimate` before the run, `system/memory` during it",
        "SYS002",
        "`--accumulate auto` (the same batch in smaller pieces), `model.gradient_checkpointing=true`, "
        "`--precision bf16`, "
        "a smaller model. `--heal` splits the batch automatically.",
    ),
    Symptom(
        "Slow training",
        "slow|slow training|too slow|speed|throughput|images per second|training takes forever",
        "`speed/images`, `speed/data_wait`, `speed/evaluation`",
        "SYS001 DST004 SYS002",
        "`--precision bf16` and `model.channels_last=true` on a GPU, `model.compile`, more `data.workers`; "
        "fewer evaluations.",
    ),
    Symptom(
        "GPU idle",
        "gpu idle|low gpu utilization|gpu utilisation|gpu utilization|gpu not used|data loading|dataloader "
        "bottleneck|starved",
        "`speed/data_wait`: the share of a step that waits for its batch",
        "SYS001 DST004",
        "Use more `data.workers`. Images are prepared once and read from a cache, so decoding is not the cause.",
    ),
    Symptom(
        "Mode collapse",
        "mode collapse|collapse|all samples alike|samples look the same|same image|no diversity|low diversity|"
        "lack of diversity|little variety|collapsed",
        "`diversity/…` and `quality/coverage` at every evaluation, against real images",
        "DIV001 DIV003 DIV008 DIV007 DIV004 MOD008 CON001 FOR006 DAT006 DAT002",
        "Balance the data (`data.balance`), draw with less guidance, train longer, use a shorter EMA.",
    ),
    Symptom(
        "Classes are missing",
        "missing classes|classes missing|missing modes|missing kinds|class imbalance|imbalanced|rare classes|"
        "mode coverage",
        "`diversity/modes`, `diversity/different_modes`; `safelight data` shows the classes before training",
        "DIV002 GEN003 CON004 DIV001 DAT004",
        "`data.balance=true` draws every class equally often; train longer.",
    ),
    Symptom(
        "Blurry samples",
        "blurry|blur|blurred|vague|smooth samples|poor samples|bad samples|low quality|undertrained|samples are noise|"
        "noisy samples|grey samples|samples are grey",
        "`quality/precision`, skill by noise level, raw beside EMA pictures",
        "DIV004 DIV005 DIV006 LEA003 EMA001 EMA007 LEA005 SAM001 SAM002 SAM006",
        "Train longer; compare raw and EMA pictures (`safelight sample --raw`), and try another EMA width.",
    ),
    Symptom(
        "Artefacts and saturated colours",
        "artefacts|artifacts|saturated|oversaturated|colour shift|color shift|too dark|too bright|washed out|clipped",
        "sample grids, denoising strips, the range of samples",
        "DIV009 DIV010 DIV011 DIV007 SAM003 SCA001 SCA005 SCH002 SCH004 SAM004 SAM005 CON006 MDE002",
        "Use less guidance; `diffusion.zero_terminal_snr=true` for very dark and very bright images.",
    ),
    Symptom(
        "Copies of training images",
        "copies|copy|memorisation|memorization|memorised|memorized|memorizing|training data leak|nearest neighbours",
        "`copies/share` at every evaluation, with the chance that real images would have as many",
        "GEN001 GEN005 DAT002 GEN002",
        "Add images, remove duplicates (`safelight data`), augment (`data.flip`, `data.random_crop`), stop earlier.",
    ),
    Symptom(
        "Overfitting",
        "overfitting|overfit|overfits|generalisation|generalization|validation loss|held out|train test gap|"
        "small dataset|"
        "few images",
        "`probe/held_ema` and `probe/held_gap` on images that are held out (`data.held_out`)",
        "GEN004 GEN002 GEN005 DAT007 GEN001",
        "Add images, augmentation, `model.dropout=0.1` or `optimizer.weight_decay`, or take the best checkpoint.",
    ),
    Symptom(
        "Model too small",
        "capacity|model too small|underfitting|underfit|model size|too few parameters|too few channels",
        "skill that levels off far from the floor (`skill/floor`)",
        "LEA005",
        "Make it wider or deeper: `model.widths`, `model.layers`, or the next preset.",
    ),
    Symptom(
        "EMA worse than the weights",
        "ema|ema decay|ema worse|ema samples bad|ema lag|ema too long|averaging",
        "`probe/ema` beside `probe/raw`, `ema/distance`, pictures of both",
        "EMA008 EMA001 EMA007 EMA002 EMA003 EMA004 EMA005 EMA006",
        "Use a shorter EMA: `ema.width=0.05`, or rebuild one after training: `safelight sample RUN --ema 0.05`.",
    ),
    Symptom(
        "Wrong scale of the images",
        "normalisation|normalization|image range|wrong range|[0, 1]|0 to 255|scaling|not normalised|data scale|"
        "pixel range",
        "the preflight of every run and the first step of a watched loop",
        "SCA001 SCA002 SCA003 SCA004 SCA005 SCA007",
        "Scale images to [-1, 1]: x / 127.5 - 1. Safelight scales the images that it prepares.",
    ),
    Symptom(
        "Labels are ignored",
        "labels ignored|class conditioning|conditioning|conditional|wrong class|guidance|cfg|classifier-free guidance",
        "how much the output changes with the labels (`check/network/…`), one row of the grid per class",
        "CON001 CON003 CON005 CON002 CON006 CON004",
        "`model.conditional=true`; `sample.guidance` between 1 and 4 needs `model.label_drop` above 0.",
    ),
    Symptom(
        "Timestep is ignored",
        "timestep|timesteps|timestep embedding|time embedding|noise level|timestep not used",
        "how much the output changes with the timestep, before the first step",
        "MOD007 MOD008 TIM001 TIM002 TIM003 TIM004 TIM005 TIM006 TIM007 TIM008 SAM007",
        "Pass the timestep that the image was noised with, and its embedding to every block.",
    ),
    Symptom(
        "Noise schedule wrong",
        "schedule|noise schedule|beta schedule|betas|alpha bar|alphas_cumprod|terminal snr|zero snr|snr",
        "the preflight compares the schedule with what was trained on",
        "SCH001 SCH002 SCH004 SCH003 FOR001 FOR002 FOR003 FOR004 FOR005 TAR006 SAM004",
        "Use `diffusion.schedule=cosine`, or the same scheduler for training and sampling.",
    ),
    Symptom(
        "Flow matching or EDM is wrong",
        "flow matching|rectified flow|velocity|flow|sd3|flux|shift|edm|karras|preconditioning|c_in|c_skip|c_out|"
        "c_noise|sigma_data|p_mean",
        "what x_t, target and time are made of in every loop that passes them, and the sampler with an exact denoiser",
        "TAR005 TAR006 TAR007 TAR008 TAR009 TAR010 FOR007 TIM007 TIM008 TIM009 SCA006 SAM007 TAR004",
        "docs/diffusion.md has the formulas of each process and target in one table.",
    ),
    Symptom(
        "Mixed precision fails",
        "mixed precision|fp16|bf16|amp|half precision|loss scale|grad scaler|gradscaler|autocast",
        "`precision/scale` and refused updates",
        "PRE001 PRE002 PRE003 CLI001 EMA003",
        "`--precision bf16` needs no loss scale; keep weights and EMA in fp32.",
    ),
    Symptom(
        "Gradient accumulation wrong",
        "gradient accumulation|accumulation|accumulate|micro batch|micro-batch|effective batch size|zero_grad",
        "the sizes of gradients and windows of a watched loop",
        "ACC001 ACC002 OPT002 EMA004 LRA007",
        "Divide the loss by the number of micro-batches; Safelight's `--accumulate N` gives the gradient of "
        "the whole batch.",
    ),
    Symptom(
        "Gradient clipping wrong",
        "gradient clipping|clipping|clip grad|clip_grad_norm",
        "`gradient/limit`, `gradient/kept`, `gradient/clipped`",
        "CLI001 CLI002 LRA001",
        "Clip after unscaling; `clipping.kind=adaptive` follows the running norm.",
    ),
    Symptom(
        "Weights do not change",
        "weights do not change|weights not updating|no update|optimizer does nothing|frozen|requires_grad|detach",
        "`update/ratio` by part of the network",
        "OPT001 OPT003 OPT004 OPT007 LRA003 MOD011 LOS002 PRE003 OPT009 OPT010 OPT011 OPT012",
        "Build the optimizer from the parameters of the model that is trained, and step it after backward.",
    ),
    Symptom(
        "Bad initialisation",
        "initialisation|initialization|init|xavier|kaiming|zero init|output layer",
        "the preflight: size of the first output and of the first update",
        "MOD003 MOD002 LRA006",
        "Keep `model.zero_output`; `model.initialisation` chooses xavier or kaiming. Start your own network with a "
        "zero last layer.",
    ),
    Symptom(
        "Resume changes the run",
        "resume|checkpoint|checkpointing|loss jumps after resume|resume spike|lost optimizer state",
        "a checkpoint is saved and loaded before the first step, and compared bit by bit",
        "CHK001 CHK002 CHK003 LRA005",
        "Save weights, EMA, optimizer and step together. `safelight resume RUN` ends with the same bytes.",
    ),
    Symptom(
        "Several GPUs disagree",
        "ddp|multi gpu|multi-gpu|distributed|several gpus|straggler|rank|nccl|hangs|hang",
        "`distributed/…`: weights, gradients, noise and images of all processes are compared",
        "DST001 DST002 DST003 DST004 DST005 DST006 DST007",
        "Start the same command with `accelerate launch` or `torchrun`; every process draws its own noise and images.",
    ),
    Symptom(
        "Broken or odd images",
        "duplicates|duplicate images|corrupt images|broken images|blank images|bad images|data quality|shuffle|"
        "shuffling",
        "`safelight data SOURCE`, and once more before training",
        "DAT002 DAT003 DAT001 DAT004 DAT005 DAT006",
        "Remove what `safelight data` lists; files that cannot be read are left out automatically.",
    ),
)  # fmt: skip


def find_symptoms(word: str) -> list[Symptom]:
    """Those that are called so; else those whose names have all of its words."""
    wanted = plain(word)
    names = {symptom.name: [plain(each) for each in (symptom.name, *symptom.words.split("|"))] for symptom in SYMPTOMS}
    exact = [symptom for symptom in SYMPTOMS if wanted in names[symptom.name]]
    if exact or not wanted:
        return exact
    parts = [stem(part) for part in wanted.split()]
    every = {name: " ".join(said) for name, said in names.items()}
    return [symptom for symptom in SYMPTOMS if all(begins_a_word(every[symptom.name], part) for part in parts)]
