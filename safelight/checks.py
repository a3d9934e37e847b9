"""The names of all readings that probes make, each recorded as `check/<name>`, and the limits that rules share."""

from __future__ import annotations

from typing import Final


class ProbeReading(str):
    """The name of one reading, with what it means."""

    meaning: str
    implied_by: ProbeReading | None
    """Where only hits are recorded: the reading that shows that the probe ran."""

    def __new__(cls, name: str, meaning: str, implied_by: ProbeReading | None = None) -> ProbeReading:
        check = super().__new__(cls, name)
        check.meaning, check.implied_by = meaning, implied_by
        return check


# Values of `target/declared`, `sampler/right_for_type` and `sampler/right_for_table` are places here: never reorder.
PREDICTIONS: Final = ("epsilon", "sample", "v_prediction", "flow", "edm", "reverse_flow", "score")
PROCESSES: Final = ("vp", "flow", "ve", "edm")  # values of `mixture/process`
TARGET_ROWS: Final = (
    "epsilon",
    "sample",
    "v",
    "flow",
    "score",
    "edm",
    "-epsilon",
    "-sample",
    "-v",
    "-flow",
    "-score",
    "-edm",
)
SWAPPED_TARGETS: Final = (
    "s·noise − a·x0",
    "a·x0 − s·noise",
    "a·noise + s·x0",
    "a·x0 + s·noise",
    "noise + x0",
)  # values of `mixture/target_swapped`
TIMES_TOLD: Final = (
    "t = s",
    "t = 1000·s",
    "t = sigma",
    "t = log(sigma) / 4",
    "t = log(sigma)",
    "t = log-SNR",
    "t = (1 − s)",
    "t = 1000·(1 − s)",
)  # values of `sampler/right_for_time`
SPACES: Final = ("pixel", "latent")  # values of `batch/space`
SCHEDULES: Final = ("cosine", "linear", "scaled-linear", "sigmoid")

# Limits that a probe applies and a rule repeats.
FORWARD_LIMIT = 0.02  # of the length of x_t: fp32 has 1e-7, bf16 0.004
SAMPLER_LIMIT = 0.003  # error over the images' size: healthy samplers of 10 to 1,000 steps stay below 1e-6 on a CPU
LATE_START = 0.9  # the first timestep over the last one; 20 steps of "leading" begin at 0.95
START_SIZES = (0.8, 1.25)  # size of the first input over the expected one
MAX_PATH_RATIO = 1.4  # ratio of expected and real sizes on the way
CLOUD_CALLS = 12  # with fewer steps a cloud comes out too narrow, even from a correct sampler
CLOUD_SPREADS = (0.5, 1.6)  # of a cloud; samplers of 10 to 50 steps return 0.75 to 1.0
IMAGE_RANGES = ((1.0, 0.0), (0.5, 0.5), (127.5, 127.5))  # (scale, shift) of [-1, 1], [0, 1] and [0, 255]


def has_image_range(scale: float, shift: float) -> bool:
    """Whether images that were scaled and shifted like this have one of the usual ranges."""
    return any(abs(scale / a - 1) < 0.02 and abs(shift - b) < 0.02 * a for a, b in IMAGE_RANGES)


# The schedule's table of alphas_cumprod, at the start.
SCHEDULE_BETAS_FALLING = ProbeReading("schedule/betas_falling", "Share of the timesteps at which beta falls.")
SCHEDULE_RISING = ProbeReading("schedule/rising", "Share of the timesteps at which alphas_cumprod rises.")
SCHEDULE_FIRST = ProbeReading("schedule/first", "First value of alphas_cumprod.")
SCHEDULE_LAST = ProbeReading("schedule/last", "Last value of alphas_cumprod.")
SCHEDULE_OUTSIDE = ProbeReading("schedule/outside", "Share of the values outside [0, 1].")
SCHEDULE_LARGEST_JUMP = ProbeReading("schedule/largest_jump", "Largest change of log-SNR between two timesteps.")
SCHEDULE_EPSILON = ProbeReading("schedule/epsilon", "1 if the model is declared to predict epsilon.")
SCHEDULE_UNCUMULATED = ProbeReading(
    "schedule/uncumulated", "1 if the table is alphas, and not their cumulated product."
)
SCHEDULE_TIMESTEPS = ProbeReading("schedule/timesteps", "Number of timesteps.")

# What the optimizer holds: at the start, and whether it keeps its state.
OPTIMIZER_MISSING = ProbeReading(
    "optimizer/missing", "Share of the trainable parameters that the optimizer does not hold."
)
OPTIMIZER_FOREIGN = ProbeReading("optimizer/foreign", "Share of its parameters that are not the model's.")
OPTIMIZER_TWICE = ProbeReading("optimizer/twice", "Number of parameters that it holds more than once.")
OPTIMIZER_FROZEN = ProbeReading("optimizer/frozen", "Share of the model that it holds and that requires no gradient.")
OPTIMIZER_MAXIMIZE = ProbeReading("optimizer/maximize", "1 if a parameter group has maximize=True.")
OPTIMIZER_RATE = ProbeReading("optimizer/rate", "Largest learning rate of its groups.")
OPTIMIZER_WEIGHT_DECAY = ProbeReading("optimizer/weight_decay", "Largest weight decay of its groups.")
OPTIMIZER_HALF_WEIGHTS = ProbeReading("optimizer/half_weights", "Share of the trainable parameters kept in 16 bits.")
OPTIMIZER_ADAPTIVE = ProbeReading("optimizer/adaptive", "1 if it has second moments.")
OPTIMIZER_FORGOTTEN = ProbeReading("optimizer/forgotten", "1 if its state was empty again before an update.")

ADAPTER_BASE_TRAINED = ProbeReading("adapter/base_trained", "Share of the network beside its adapters that is trained.")
ADAPTER_MISSING = ProbeReading(
    "adapter/missing", "Share of the adapters that are to be trained and no optimizer holds."
)
ADAPTER_DEAD = ProbeReading("adapter/dead", "Share of the adapters whose matrices are all 0.")
FROZEN_CHANGED = ProbeReading(
    "optimizer/frozen_changed", "1 if weights that are not trained changed.", OPTIMIZER_MISSING
)
RATE_BETWEEN = ProbeReading("optimizer/rate_between", "1 if the rate changed between micro-batches.", OPTIMIZER_MISSING)
RESUME_STEP = ProbeReading("resume/step", "Updates that were made before the watch began, as declared.")
RESUME_OPTIMIZER = ProbeReading(
    "resume/optimizer", "Updates that the state of the optimizer has seen; 0 where it is new."
)
RESUME_COPIED = ProbeReading("resume/copied", "1 if the EMA equals the weights to the last bit.")

# The dataset, by a few hundred images.
DATA_IMAGES = ProbeReading("data/images", "Number of images that were checked.")
DATA_NONFINITE = ProbeReading("data/nonfinite", "Share of the images with NaN or infinity.")
DATA_LOWEST = ProbeReading("data/lowest", "Lowest value.")
DATA_HIGHEST = ProbeReading("data/highest", "Highest value.")
DATA_REACH = ProbeReading("data/reach", "Quantile 0.995 of the absolute values.")
DATA_MEAN = ProbeReading("data/mean", "Mean of all values.")
DATA_STD = ProbeReading("data/std", "Standard deviation of all values.")
DATA_BLANK = ProbeReading("data/blank", "Share of the images with one colour only.")
DATA_DUPLICATES = ProbeReading("data/duplicates", "Share of the images that are exact copies of others.")
DATA_LARGEST_GROUP = ProbeReading("data/largest_group", "Share of the images in the largest group of equal ones.")
DATA_INTEGER = ProbeReading("data/integer", "1 if the images are of an integer type.")
DATA_HELD_OUT_OVERLAP = ProbeReading("data/held_out_overlap", "Share of the held-out images that are trained on.")
ROWS_HELD_OUT = ProbeReading("rows/held_out", "Share of a batch that is held out.")
ROWS_LABELS_MOVED = ProbeReading("rows/labels_moved", "Share of a batch with the label of another image.")

# The clean images of a batch, and its noise.
BATCH_MEAN = ProbeReading("batch/mean", "Mean of x0.")
BATCH_STD = ProbeReading("batch/std", "Standard deviation of x0.")
BATCH_LOWEST = ProbeReading("batch/lowest", "Lowest value of x0.")
BATCH_HIGHEST = ProbeReading("batch/highest", "Highest value of x0.")
BATCH_ABS_MAX = ProbeReading("batch/reach", "Largest absolute value of x0.")
BATCH_INTEGER = ProbeReading("batch/integer", "1 if x0 is of an integer type.")
BATCH_DIMENSIONS = ProbeReading("batch/dimensions", "Number of dimensions of x0, the batch included.")
BATCH_SPACE = ProbeReading("batch/space", "The declared space of x0: its place in SPACES.")
BATCH_CHANNELS = ProbeReading("batch/channels", "Number of channels of x0, by its second dimension.")
BATCH_TAILS = ProbeReading(
    "batch/tails", "Largest distance of a value of x0 from the mean, over the standard deviation."
)
CHANNEL_OFFSET = ProbeReading(
    "batch/channel_offset", "Largest mean of a channel of x0, over the standard deviation of the channel."
)
CHANNEL_LOWEST = ProbeReading("batch/channel_lowest", "Smallest standard deviation of a channel of x0.")
CHANNEL_HIGHEST = ProbeReading("batch/channel_highest", "Largest standard deviation of a channel of x0.")
BATCH_MOMENTS = (BATCH_MEAN, BATCH_STD, BATCH_LOWEST, BATCH_HIGHEST)
NOISE_MEAN = ProbeReading("noise/mean", "Mean of the noise.")
NOISE_STD = ProbeReading("noise/std", "Standard deviation of the noise.")
NOISE_LOWEST = ProbeReading("noise/lowest", "Lowest value of the noise.")
NOISE_HIGHEST = ProbeReading("noise/highest", "Highest value of the noise.")
NOISE_COUNT = ProbeReading("noise/count", "Number of values that these moments are of.")
NOISE_KURTOSIS = ProbeReading("noise/kurtosis", "Kurtosis of the noise; 3 if it is normal.")
NOISE_WITHIN = ProbeReading("noise/within", "Variance within a sample, the mean over samples.")
NOISE_BETWEEN = ProbeReading("noise/between", "Variance between samples, the mean over pixels.")
NOISE_MOMENTS = (NOISE_MEAN, NOISE_STD, NOISE_LOWEST, NOISE_HIGHEST)

# Noising: x_t against the schedule, by medians over the samples.
FORWARD_WRONG = ProbeReading("forward/wrong", "Share of the samples whose x_t is not the one that the schedule gives.")
FORWARD_ERROR = ProbeReading("forward/error", "Length of that difference over the length of x_t.")
FORWARD_RESIDUAL = ProbeReading("forward/residual", "What no mixture of x0 and noise explains, over the length of x_t.")
FORWARD_NOISE_SEEN = ProbeReading("forward/noise_seen", "Fitted factor of the noise.")
FORWARD_CLEAN = ProbeReading("forward/clean", "What x0 alone does not explain, over the length of x_t.")
FORWARD_ORDER = ProbeReading("forward/order", "Difference of fitted and expected noise levels, both sorted.")
FORWARD_ORDER_ERROR = ProbeReading(
    "forward/order_error", "Difference of fitted and expected noise levels, sample by sample."
)
FORWARD_ROUGH = ProbeReading("forward/rough", "Difference of neighbours in noise level over that of all samples.")
FORWARD_CLEAN_ROOT = ProbeReading(
    "forward/clean_root", "Distance of the fitted factor of x0 from the schedule's without its square root."
)
FORWARD_NOISE_ROOT = ProbeReading(
    "forward/noise_root", "Distance of the fitted factor of the noise from the schedule's without its square root."
)
FORWARD_AT_LIMIT = ProbeReading("forward/at_limit", "Share of the values of x_t that equal its largest.")
FORWARD_INPUT_ERROR = ProbeReading("forward/input_error", "How far the network's input is from x_t, any scale allowed.")
FORWARD_INPUT_SCALE = ProbeReading(
    "forward/input_scale", "Median distance of the network's input from c_in·x_t, in c_in."
)
FORWARD_INNER_SCALE = ProbeReading(
    "forward/inner_scale",
    "The same of the network inside of a preconditioned one, whose answer is c_skip·x_t + c_out·F.",
)
TIMESTEPS_PASSED_ON = ProbeReading(
    "timesteps/passed_on", "Rank correlation of the network's timesteps with those of x_t."
)
TARGET_DECLARED = ProbeReading("target/declared", "The declared prediction type: its place in PREDICTIONS.")
TARGET_OF_SCHEDULER = ProbeReading(
    "target/of_scheduler", "The prediction_type of the scheduler whose table the loop reads: its place in PREDICTIONS."
)
TARGET = {kind: ProbeReading(f"target/{kind}", f"Relative distance of the target from {kind}.") for kind in PREDICTIONS}
TARGET_COSINE = {
    kind: ProbeReading(f"target/{kind}_cosine", f"Cosine of the target with {kind}.") for kind in PREDICTIONS
}
TARGET_SQUARE = ProbeReading("target/square", "Mean square of the target.")

# Whatever is declared: what x_t and target are made of.
MIXTURE_INPUT = ProbeReading(
    "mixture/input", "What x0 and noise do not explain of the network's input, as a share of it."
)
MIXTURE_TARGET = ProbeReading("mixture/target", "What x0 and noise do not explain of the target, as a share of it.")
MIXTURE_INPUT_KURTOSIS = ProbeReading(
    "mixture/input_kurtosis", "Kurtosis of that rest; 3 if it is noise.", MIXTURE_INPUT
)
MIXTURE_INPUT_NEIGHBOURS = ProbeReading("mixture/input_neighbours", "Correlation of neighbours in it.", MIXTURE_INPUT)
MIXTURE_TARGET_KURTOSIS = ProbeReading(
    "mixture/target_kurtosis", "Kurtosis of that rest; 3 if it is noise.", MIXTURE_TARGET
)
MIXTURE_TARGET_NEIGHBOURS = ProbeReading(
    "mixture/target_neighbours", "Correlation of neighbours in it.", MIXTURE_TARGET
)
MIXTURE_OF_INPUT = (MIXTURE_INPUT, MIXTURE_INPUT_KURTOSIS, MIXTURE_INPUT_NEIGHBOURS)
MIXTURE_OF_TARGET = (MIXTURE_TARGET, MIXTURE_TARGET_KURTOSIS, MIXTURE_TARGET_NEIGHBOURS)
MIXTURE_PROCESS = ProbeReading(
    "mixture/process", "The recognised process: its place in PROCESSES; -1 if it is not known."
)
MIXTURE_ROW = ProbeReading("mixture/row", "The recognised target: its place in TARGET_ROWS; -1 if it is not known.")
MIXTURE_SIGMA_DATA = ProbeReading("mixture/sigma_data", "EDM: the deviation of the data in c_in.", MIXTURE_PROCESS)
MIXTURE_TARGET_SIGMA_DATA = ProbeReading("mixture/target_sigma_data", "EDM: that of the target.", MIXTURE_PROCESS)
MIXTURE_TARGET_SCALE = ProbeReading("mixture/target_scale", "Factor of a target over one with a name.", MIXTURE_PROCESS)
MIXTURE_TARGET_SWAPPED = ProbeReading(
    "mixture/target_swapped", "A target with signs or factors swapped: its place in SWAPPED_TARGETS.", MIXTURE_PROCESS
)
MIXTURE_TIME_FACTOR = ProbeReading("mixture/time_factor", "Flow: the network's time over the noise.", MIXTURE_PROCESS)
MIXTURE_LOG_MEAN = ProbeReading("mixture/log_mean", "Mean of log(sigma) over all samples.", MIXTURE_PROCESS)
MIXTURE_LOG_DEVIATION = ProbeReading("mixture/log_deviation", "Deviation of log(sigma).", MIXTURE_PROCESS)
MIXTURE_DRAWS = ProbeReading("mixture/draws", "Number of samples of these two.", MIXTURE_PROCESS)
MIXTURE_TIME = ProbeReading(
    "mixture/time", "1 if the network's time rises with the noise, -1 if it falls, 0 if neither."
)

# The loss, and what is not finite.
LOSS_MSE = ProbeReading("loss/error", "Mean squared error of prediction and target.")
LOSS_ZERO_MSE = ProbeReading("loss/zero", "The same error for a prediction of 0.")
LOSS_SLOPE = ProbeReading("loss/slope", "Factor of the prediction that would give the least error.")
LOSS_REPORTED = ProbeReading("loss/told", "The loss that the loop passes.")
TARGET_WITH_GRADIENT = ProbeReading("target/with_gradient", "1 if gradients flow through the target.")
LOSS_SAME_SHAPE = ProbeReading("loss/same_shape", "1 if prediction and target have the same shape.")
NONFINITE: dict[str, ProbeReading] = {
    name: ProbeReading(f"finite/{name}", f"0 at a step at which {name} is not finite.", beside)
    for name, beside in (("x0", BATCH_ABS_MAX), ("noise", NOISE_COUNT), ("x_t", FORWARD_WRONG), ("target", LOSS_MSE),
                         ("pred", LOSS_MSE), ("loss", LOSS_MSE))
}  # fmt: skip
NONFINITE_LOSS_NUMBER = ProbeReading(
    "finite/loss_number", "0 at a step at which the loss is infinite, not NaN.", LOSS_MSE
)

# A stream of steps: what comes again, and what comes at all.
STREAM_DIFFERENT = ProbeReading("stream/different", "Number of different images so far.")
STREAM_DRAWN = ProbeReading("stream/drawn", "Number of images drawn in the steps that were looked at so far.")
STREAM_PER_STEP = ProbeReading(
    "stream/per_step", "Number of images of a step, on average over those that were looked at."
)
STREAM_TIMES_DRAWN = ProbeReading("stream/times_drawn", "Number of timesteps drawn so far.")
STREAM_TIMES_GAP = ProbeReading(
    "stream/times_gap", "Longest part of the schedule that was never drawn, as a share of it."
)
STREAM_TIMES_KINDS = ProbeReading("stream/times_kinds", "Number of different timesteps over that of uniform draws.")
STREAM_TIMES_HIGHEST = ProbeReading("stream/times_highest", "Highest timestep so far.")
STREAM_TIMES_LOWEST = ProbeReading("stream/times_lowest", "Lowest timestep so far.")
STREAM_TIMES_OUTSIDE = ProbeReading(
    "stream/times_outside", "Share of timesteps outside the schedule.", STREAM_TIMES_DRAWN
)
STREAM_TIMES_AGAIN = ProbeReading(
    "stream/times_again", "1 if the timesteps repeat an earlier step's.", STREAM_TIMES_DRAWN
)
STREAM_TIMES_ALIKE = ProbeReading("stream/times_alike", "1 if a batch has one timestep only.", STREAM_TIMES_DRAWN)
STREAM_AGAIN: dict[str, ProbeReading] = {
    "noise": ProbeReading("stream/noise_again", "1 if the noise repeats an earlier step's.", NOISE_COUNT),
    "images": ProbeReading("stream/images_again", "1 if the batch repeats an earlier step's.", STREAM_DRAWN),
}
STREAM_ALIKE: dict[str, ProbeReading] = {
    "noise": ProbeReading("stream/noise_alike", "1 if the noise equals that of the last checked step.", NOISE_COUNT),
    "images": ProbeReading("stream/images_alike", "1 if the batch equals that of the last checked step.", STREAM_DRAWN),
}
STREAM_LABELS_KINDS = ProbeReading("stream/labels_kinds", "Number of different labels so far.")
STREAM_LABELS_DRAWN = ProbeReading("stream/labels_drawn", "Number of labels drawn so far.")
STREAM_LABELS_NEIGHBOURS = ProbeReading("stream/labels_neighbours", "Share of neighbouring samples with equal labels.")
STREAM_LABELS_NEIGHBOURS_EXPECTED = ProbeReading(
    "stream/labels_neighbours_expected", "The same share for shuffled labels."
)
STREAM_LABELS_PAIRS = ProbeReading("stream/labels_pairs", "Number of neighbouring samples that were compared.")
STREAM_LABELS_HIDDEN = ProbeReading(
    "stream/labels_hidden", "Share of recent samples whose label the network is not shown."
)
STREAM_NULL_TRAINED = ProbeReading(
    "stream/null_trained", "1 if a row of the label embedding that no label has was trained."
)
CONDITIONS_COUNT = ProbeReading(
    "conditions/count", "Tensors of a call with an entry for each sample, but images and time."
)
CONDITIONS_EMPTY = ProbeReading("conditions/empty", "Share of the wide ones among them that are all 0.")
CONDITIONS_CONSTANT = ProbeReading(
    "conditions/constant", "Share of them that are the same for all samples of the batch."
)
CONDITIONS_GAIN = ProbeReading("conditions/gain", "How much larger the error is with the conditions of other samples.")
CONDITIONS_GAIN_ERROR = ProbeReading("conditions/gain_error", "Standard error of that.")
CONDITIONS_ERROR = ProbeReading("conditions/error", "The error with their own conditions.")
# By the beginning of its name: what is measured on copies of the weights.
MEASURED_ON_COPIES = ("replay/", "update/", "search/", "labels/", "response/", CONDITIONS_GAIN, CONDITIONS_ERROR)
STREAM_RECENT_KINDS = ProbeReading(
    "stream/recent_kinds", "Number of different labels that the network was shown recently."
)
STREAM_RECENT_HIGHEST = ProbeReading("stream/recent_highest", "Highest label that the network was shown recently.")
STREAM_SHOWN_KINDS = ProbeReading("stream/shown_kinds", "Number of different labels that the network was shown.")
STREAM_SHOWN_LOWEST = ProbeReading("stream/shown_lowest", "Lowest label that the network was shown.")
STREAM_SHOWN_HIGHEST = ProbeReading("stream/shown_highest", "Highest label that the network was shown.")

# A copy of the network, before and after a few updates of its own.
NETWORK_FINITE = ProbeReading("network/finite", "1 if the output is finite.")
NETWORK_SAME_SHAPE = ProbeReading("network/same_shape", "1 if the output has the shape of the input.")
NETWORK_SQUARE = ProbeReading("network/square", "Mean square of the output.")
NETWORK_SILENT = ProbeReading("network/silent", "Largest share of units of an activation that are 0 for every sample.")
NETWORK_SUNK = ProbeReading("network/sunk", "Largest share of units of a layer far below 0 for every sample.")
NETWORK_RANDOM = ProbeReading("network/random", "Change of the output between two equal calls in evaluation mode.")
NETWORK_DROPOUT = ProbeReading("network/dropout", "Largest dropout.")
NETWORK_DEPENDS_ON_MODE = ProbeReading("network/depends_on_mode", "1 if the network has dropout or batch norm.")
NETWORK_ZERO_WEIGHTS = ProbeReading("network/zero_weights", "Share of the weight matrices that are 0.")
NETWORK_REACHED = ProbeReading("network/reached", "Share of the parameters with a gradient.")
NETWORK_MATRICES_REACHED = ProbeReading("network/matrices_reached", "Share of the weight matrices with a gradient.")
NETWORK_UNUSED = ProbeReading("network/unused", "Largest share of inputs of a convolution that are 0 for every sample.")
NETWORK_REHEARSED = ProbeReading("network/rehearsed", "Loss after the updates over the loss before.")
NETWORK_LABEL_ROWS = ProbeReading("network/label_rows", "Number of rows of the label embedding.")
NETWORK_LABEL_RESPONSE = ProbeReading("network/label_response", "Relative change of the output for other labels.")
NETWORK_TIME_RESPONSE = ProbeReading(
    "network/time_response", "Relative change of the output from first to last timestep."
)
NETWORK_TIME_COLLISION = ProbeReading("network/time_collision", "Least cosine between the embeddings of two timesteps.")
NETWORK_TIME_HIGHEST = ProbeReading("network/time_highest", "Highest time of the first call.")
NETWORK_COUPLING = ProbeReading("network/coupling", "Relative change of the other outputs when one image is replaced.")
NETWORK_RESPONSE = ProbeReading("network/response", "Relative change of the output of that image.")
NETWORK_LOUDEST = ProbeReading("network/loudest", "Largest output with a last layer 10,000 times as strong.")
NETWORK_ONE_SIDED = ProbeReading("network/one_sided", "1 if that output never changes its sign.")

# One small tensor at every step, the hooks, and the mode.
SAMPLE_PARAMETER_MOVED = ProbeReading("sentinel/moved", "1 if the tensor moved in the update.")
SAMPLE_PARAMETER_GRADIENT = ProbeReading("sentinel/gradient", "Norm of its gradient.")
SAMPLE_PARAMETER_ECHO = ProbeReading("sentinel/echo", "Cosine of its gradient with that of the step before.")
SAMPLE_PARAMETER_BACKWARD = ProbeReading(
    "sentinel/came", "Norm of its gradient after the backward pass; -1 without one."
)
SAMPLE_PARAMETER_CARRIED = ProbeReading("sentinel/carried", "1 if a gradient was there before the first backward pass.")
SAMPLE_PARAMETER_CHANGED = ProbeReading(
    "sentinel/changed", "1 if it changed between two updates.", SAMPLE_PARAMETER_MOVED
)
ANSWER_UNHEARD = ProbeReading("answer/unheard", "Share of the samples whose prediction has no gradient.")
MODE_TRAINING = ProbeReading("mode/training", "1 if the network was called in training mode; recorded when it changes.")
PRECISION_HALF = ProbeReading("precision/half", "Autocast: 1 for fp16, 2 for bf16, else 0; recorded when it changes.")
PRECISION_SCALED = ProbeReading("precision/scaled", "1 if a gradient scaler is in use.")
ACCUMULATION_MICRO_BATCHES = ProbeReading(
    "accumulation/micro_batches", "Micro-batches of an update; recorded on a change."
)
ACCUMULATION_BACKWARDS = ProbeReading("accumulation/backwards", "Backward passes of an update; recorded on a change.")

# An update that is made once more on copies.
UPDATE_MOVED = ProbeReading("update/moved", "Length of the update.")
UPDATE_ALIGNMENT = ProbeReading("update/alignment", "Cosine between the update and the negative gradient.")
UPDATE_LOST = ProbeReading("update/lost", "Share of the weights with a gradient that did not move.")
UPDATE_DECAY_SHARE = ProbeReading("update/decay_share", "Length of the weight decay over that of the update.")
UPDATE_DECAY = ProbeReading("update/decay", "Largest weight decay of the parameter groups.")
UPDATE_COARSE = ProbeReading("update/coarse", "1 if all weights are numbers of 16 bits.")
UPDATE_WEIGHTS = ProbeReading("update/weights", "Length of the weights.")
UPDATE_DECAY_PULL = ProbeReading("update/decay_pull", "Weight decay added to the gradient, over the gradient.")
UPDATE_ERROR = ProbeReading("update/error", "Distance of the update from the optimizer's own, over its length.")
UPDATE_EXPECTED = ProbeReading("update/expected", "Length of the optimizer's own update.")
REPLAY_OUTPUT_ERROR = ProbeReading("replay/output_error", "Relative change of the output when the call is repeated.")
REPLAY_MSE = ProbeReading("replay/error", "Mean squared error of the repeated call.")
LOOP_LOSS = ProbeReading("replay/told", "The loss that the loop passes.")
REPLAY_ZERO = ProbeReading("replay/zero", "The error of a prediction of 0.")
REPLAY_MICRO_BATCHES = ProbeReading("replay/micro_batches", "Number of micro-batches.")
REPLAY_MISSING = ProbeReading("replay/missing", "1 if no parameter has a gradient.")
APPLIED_GRADIENT_NORM = ProbeReading("replay/norm", "Norm of the optimizer's gradient.")
REPLAY_GRADIENT_NORM = ProbeReading("replay/own_norm", "Norm of the gradient of the squared error.")
REPLAY_COSINE = ProbeReading("replay/cosine", "Cosine between the two gradients.")
REPLAY_RATIO = ProbeReading("replay/ratio", "Norm of the first over that of the second.")
REPLAY_VANISHED = ProbeReading("replay/vanished", "Share of its values that are 0 and should not be.")
REPLAY_WORST = ProbeReading("replay/worst", "Least cosine of a single tensor.")
REPLAY_SIGNS = ProbeReading("replay/signs", "Share of the values with the same sign in both.")
REPLAY_LAST_COSINE = ProbeReading("replay/last_cosine", "Cosine with the gradient of the last micro-batch alone.")
REPLAY_CARRIED = ProbeReading("replay/carried", "Part of the gradient of the step before, over its own.")
REPLAY_EXPLAINED = ProbeReading("replay/explained", "Share of the gradient that these two explain.")
REPLAY_SAMPLE_GRADIENT = ProbeReading(
    "replay/came", "Norm of one tensor's gradient after the backward pass; -1 without one."
)
LINE_SEARCH_RATIO: dict[str, ProbeReading] = {
    length: ProbeReading(f"search/{length}", f"Error after an update {length} times as long, over the error before.")
    for length in ("0.1", "0.3", "1", "3", "10", "100", "10000", "1000000")
}
LINE_SEARCH_SHORTER: dict[str, ProbeReading] = {
    length: ProbeReading(f"search/{length}", f"The same {length} times as long, where nothing longer lowers the error.")
    for length in ("0.03", "0.01", "0.003", "0.001", "0.0001", "0.00001")
}
LINE_SEARCH_START = ProbeReading("search/start", "Error before the update.")
LINE_SEARCH_ZERO = ProbeReading("search/zero", "Error of a prediction of 0.")
LINE_SEARCH_RATE = ProbeReading("search/rate", "Learning rate of the update.")
TRIAL_RATE = ProbeReading("trial/rate", "Learning rate that did not hold in the preflight.")
TRIAL_ERROR = ProbeReading("trial/error", "Error after one update with it, over that of a prediction of 0.")
TRIAL_STABLE_RATE = ProbeReading("trial/holds", "Highest rate tried with which the error stayed below that.")
LABELS_GAIN = ProbeReading("labels/gain", "Error with the labels of other samples minus that with the true ones.")
LABELS_GAIN_ERROR = ProbeReading("labels/gain_error", "Standard error of that gain.")
LABELS_ERROR = ProbeReading("labels/error", "Error with the true labels.")
LABELS_EXPLAIN = ProbeReading("labels/explain", "How much more alike images of one label are, in deviations of chance.")
RESPONSE: dict[str, ProbeReading] = {
    "t": ProbeReading("response/time", "Relative change of the output for the timesteps of other samples."),
    "labels": ProbeReading("response/labels", "Relative change of the output for the labels of other samples."),
    "conditions": ProbeReading("response/conditions", "The same for everything but images and time, of other samples."),
}

# The EMA.
EMA_DECAY = ProbeReading("average/decay", "Decay that best explains how the EMA moved.")
EMA_MOVED = ProbeReading("average/moved", "Way of the EMA over its distance from the weights.")
EMA_LEFT = ProbeReading("average/left", "Share of that way that neither the decay nor rounding explains.")
EMA_COSINE = ProbeReading("average/cosine", "Cosine of the matrices of the EMA with those of the weights.")
EMA_SHARED = ProbeReading("average/shared", "Share of its tensors that are the weights themselves.")
EMA_DISTANCE = ProbeReading("average/distance", "Distance of the EMA from the weights.")
EMA_ROUNDING = ProbeReading("average/rounding", "Rounding over the way.")
EMA_COARSE = ProbeReading("average/coarse", "1 if the EMA is kept in 16 bits.")
EMA_SAME = ProbeReading("average/same", "1 if the EMA of a small tensor did not move since the last check.")
EMA_STILL = ProbeReading(
    "average/still", "Updates for which a copy of the network that is named as an EMA has not moved."
)
EMA_CALLED = ProbeReading("average/called", "1 if the EMA was called without gradients, as for samples.", EMA_DECAY)
EMA_BETWEEN = ProbeReading("average/between", "1 if the EMA moved between two micro-batches.")
PICTURES_APART = ProbeReading("pictures/apart", "Root mean square difference of samples of EMA and raw weights.")
PICTURES_DISTANCE = ProbeReading("pictures/distance", "Distance of the EMA from the raw weights, over their length.")

# Pixels of the samples of every picture, against real images.
SAMPLES_CONTRAST = ProbeReading("samples/contrast", "Spread of the pixels within a sample, over that of real images.")
SAMPLES_APART = ProbeReading("samples/apart", "Spread of a pixel over all samples, over that of real images.")
SAMPLES_SATURATED = ProbeReading("samples/saturated", "Share of the values of samples at an end of the range.")
SAMPLES_COLOUR = ProbeReading(
    "samples/colour", "Shift of the mean colour of samples, over its spread among real images."
)
SAMPLES_GRAIN = ProbeReading("samples/grain", "Difference of neighbouring pixels of samples, over that of real images.")
SAMPLES_NONFINITE = ProbeReading("samples/nonfinite", "Share of the values of samples that are not finite.")

# A checkpoint made in memory, loaded and trained on.
CHECKPOINT: dict[str, ProbeReading] = {
    name: ProbeReading(f"checkpoint/{name}", f"Share of the tensors of the {name} that differ after loading.")
    for name in ("model", "average", "optimizer")
}
CHECKPOINT_STEP = ProbeReading("checkpoint/step", "Share of the weights that differ after the next steps.")

# The sampler, driven by an exact denoiser.
SAMPLER_FAILED = ProbeReading("sampler/failed", "1 if it could not be called with a network that knows the answer.")
SAMPLER_FINITE = ProbeReading("sampler/finite", "1 if the samples are finite.")
SAMPLER_ERROR = ProbeReading("sampler/error", "Distance of the samples from the two images, over their size.")
SAMPLER_LEFT = ProbeReading("sampler/left", "The same after the best scale and shift; the median over samples.")
SAMPLER_SCALE = ProbeReading("sampler/scale", "That scale.")
SAMPLER_SHIFT = ProbeReading("sampler/shift", "That shift.")
SAMPLER_SHARE = ProbeReading("sampler/share", "Share of the samples that are the first of the two images.")
SAMPLER_LARGEST = ProbeReading("sampler/largest", "Largest absolute value of the samples.")
SAMPLER_AT_LIMIT = ProbeReading("sampler/at_limit", "Share of the values at that limit.")
SAMPLER_REACH = ProbeReading("sampler/reach", "Largest absolute value of the two images.")
SAMPLER_CLOUD_SPREAD = ProbeReading("sampler/cloud_spread", "Spread of samples of a Gaussian, over its own.")
SAMPLER_CLOUD_MEAN = ProbeReading("sampler/cloud_mean", "Distance of their mean from its own, after scale and shift.")
SAMPLER_CLOUD_SCALE = ProbeReading("sampler/cloud_scale", "That scale.")
SAMPLER_CLOUD_SHIFT = ProbeReading("sampler/cloud_shift", "That shift.")
SAMPLER_CALLS = ProbeReading("sampler/calls", "Number of calls of the network.")
SAMPLER_FIRST = ProbeReading("sampler/first", "First timestep over the last one of the schedule.")
SAMPLER_LAST = ProbeReading("sampler/last", "Last timestep over the last one of the schedule.")
SAMPLER_HIGHEST_TIME = ProbeReading("sampler/highest_time", "Highest timestep.")
SAMPLER_FALLING = ProbeReading("sampler/falling", "Share of the calls at which the timestep falls.")
SAMPLER_START = ProbeReading("sampler/start", "Size of the first input over the expected one.")
SAMPLER_PATH = ProbeReading("sampler/path", "Largest ratio of expected and real size of the inputs, either way.")
SAMPLER_IN_TRAINING = ProbeReading("sampler/in_training", "1 if the network was in training mode.")
SAMPLER_WITH_GRADIENTS = ProbeReading("sampler/with_gradients", "1 if gradients were on.")
SAMPLER_RIGHT_FOR_TYPE = ProbeReading("sampler/right_for_type", "The prediction type it is right for.", SAMPLER_FINITE)
SAMPLER_RIGHT_FOR_TABLE = ProbeReading("sampler/right_for_table", "The schedule it is right for.", SAMPLER_FINITE)
SAMPLER_RIGHT_FOR_TIME = ProbeReading("sampler/right_for_time", "Its place in TIMES_TOLD.", SAMPLER_FINITE)
SAMPLER_RIGHT_UNSCALED = ProbeReading(
    "sampler/right_unscaled", "1 if it is right for an input without c_in.", SAMPLER_FINITE
)
SAMPLER_GUIDANCE = ProbeReading("sampler/guidance", "Largest error of guided predictions.")
