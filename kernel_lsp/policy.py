"""Every threshold of the judge: one name each, its unit in the name or below it, and its source.

Plain numbers and nothing else, so that every room and every worker may read them. A source is a paper, a result file
below `tests/bench/results/`, or a reason why the value was *chosen*. Settings of the user's (`config/settings.py`) have
their defaults here. `judge.measure.digest` hashes all of them into a verdict's id.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# How sure a verdict must be, and what it may cost

DELTA: Final = 0.01
"""Smallest difference worth having, as |ln(B/A)|. Chosen: six times or more the 0.04 to 0.15 % by which pairs
of processes differ (`power`, deviation_between_processes)."""
ALPHA: Final = 0.05
"""Probability with which an interval may miss the truth. Chosen: the usual 5 %."""
BUDGET_MS: Final = 300.0
"""GPU milliseconds for the blocks of one candidate. Chosen: ten times the median of `aa`, 32 ms."""
ERROR_FACTOR: Final = 2.0
"""Largest ratio of a candidate's error to the baseline's own. Chosen: another order of summation changes it."""

# Statistics of blocks (`judge/measure/intervals.py` derives them)

MIN_BLOCKS: Final = 4
"""Fewest blocks for a decision: with fewer the interval is infinite at `ALPHA`."""
PROVISIONAL_BLOCKS: Final = 8
"""Fewest blocks to call a candidate provisionally faster or slower. Chosen: winsorising starts at 6."""
FOLLOWED_BLOCKS: Final = 16
"""Blocks up to which no gain is followed until it is known to be a loss, or a loss until it is a clear one. Chosen:
of 17 GEMMs 1 % slower 8 were only NOT_WORTH_IT without that (tests/bench/README.md, known differences)."""
FOLLOWED_MS: Final = 100.0
"""No gain is followed for so many GPU milliseconds, too, whichever lasts longer. Chosen: group norm of 4 us against
itself was NOT_WORTH_IT after 16 blocks in 26 ms, of which one was an outlier (0.973x to 0.999x)."""
CONFIRMATION_BLOCKS: Final = 10
"""Fresh blocks of a second look. Chosen: its t interval is as wide as the first look's after 25 (0.72 deviations)."""
CONFIRM_AFTER_SECONDS: Final = 0.3
"""Pause before a second look. Chosen: longer than a first look lasts."""
CLEAR_LOSS: Final = 0.05
"""A loss, as ln(B/A) beyond the layout bias, that is accepted at the first look. Chosen: beyond the largest seen of a
kernel against itself, 2.9 % (`judge_speed`, a Triton kernel as it stands). Errors: `paired_verdict_simulation`."""
HOSTED_LAUNCH_US: Final = 1000.0
"""Microseconds of a launch that no graph repeats, below which the host's own jitter is a part of its time. A loss of
such is never accepted at the first look: Liger's cross entropy, which waits for the GPU in each call of 370 us, was
0.78x against itself once in three times, in blocks of 0.57x to 1.85x (H200, `public_kernels`)."""
HOSTED_PROCESS_PAIRS: Final = 5
"""Pairs of processes whose means decide on a claim there. Measured: blocks of two pairs alone called it 0.77x against
itself again, from 0.68x to 0.88x in the second (H200, 7ed7c014)."""
MOST_DISCARDED_BLOCKS: Final = 20
"""Discarded blocks after which a clock counts as never steady. Chosen: five times `MIN_BLOCKS`."""
LEAST_DEVIATION: Final = 5e-4
"""Least deviation assumed for a block. Chosen: memory places within one process differ by 0.3 % (`placement`)."""
SHARED_CLEARANCE_DELTAS: Final = 2.0
"""Margins of delta that a difference must clear on a GPU that others use. Chosen: `aa_busy` has no false FASTER."""
PLACEMENT_BLUR_US: Final[Mapping[str, float]] = MappingProxyType({"short": 0.1, "cold": 0.5})
"""Microseconds, by mode, by which a kernel may differ from itself in another process, on an H200: twice the median of
`self_judgement` where the cache is flushed (0.24 us), four times it for short launches (0.024 us)."""
PROCESS_SCATTER_US: Final[Mapping[str, float]] = MappingProxyType({"short": 0.002, "cold": 0.12})
"""Microseconds, by mode, by which pairs of processes scatter about the mean of many (one standard deviation), on H200s:
that of estimates in `aa_idle` and `aa_busy`, less their own noise (0.11 and 0.13 us where the cache is flushed)."""
PROCESS_SCATTER_DEVIATIONS: Final = 0.25
"""The same as a share of the deviation of a block, to be added in squares: what makes blocks differ makes processes
differ. Chosen: with it and the next, 272 of 282 intervals of `power` hold the truth on four H200s."""
PROCESS_SCATTER_SHARE: Final[Mapping[str, float]] = MappingProxyType({"short": 5e-4, "cold": 2.4e-3})
"""The same as a share of the time, to be added in squares; where the cache is flushed, of the time in which memory
reads and writes at once: an element-wise kernel scatters by up to 0.3 %, one that only reads by no more than its blocks
tell (`power`)."""
MAD_TO_SIGMA: Final = 1.4826
"""Makes a median absolute deviation a standard one (Rousseeuw, Croux, J. Am. Stat. Assoc. 88, 1993)."""
WINSOR_SIGMAS: Final = 3.0
"""Robust deviations beyond which a block is drawn in: one in 370 Gaussian ones."""
WINSOR_FROM_BLOCKS: Final = 6
"""Fewest blocks for drawing in outliers. Chosen: a median of fewer is moved by two of them."""
AUTOCORRELATION_FROM_BLOCKS: Final = 12
"""Fewest blocks for widening the interval by their autocorrelation. Chosen: of fewer it is mostly chance."""
MOST_AUTOCORRELATION: Final = 0.6
"""Largest lag-1 autocorrelation that is applied. Chosen: it doubles the deviation."""
PRIOR_VARIANCE: Final = 4.0
"""g of the mixture t-test. Chosen: effects worth deciding about are of the order of two deviations of a block."""
BOOTSTRAP_RESAMPLES: Final = 2000
"""Resamples of blocks in a second look. Chosen: 50 of them lie in each tail of 2.5 %."""
DETECTION_POWER: Final = 0.95
"""Probability with which an AMBIGUOUS verdict says that a difference would have shown."""
RACE_LEAST_ROUNDS: Final = 5
"""Rounds of a race before a candidate is dropped: with fewer the interval is infinite at `ALPHA` / 16."""
RACE_MOST_ROUNDS: Final = 10
"""Rounds of a race. Chosen: six of twelve that are 30 % slower are gone after five (`paired_verdict_simulation`)."""

# Segments and modes

SHORT_LAUNCH_US: Final = 10.0
"""Shorter launches are timed together, not each between two events: below it do_bench calls a kernel faster than itself
in 9 to 16 of 40 pairs (`aa`)."""
UNTIMED_CASE_US: Final = 7.0
"""A case shorter than this measures launching more than the kernel; it is not timed beside longer ones. Chosen."""
UNTIMED_CASE_RATIO: Final = 20.0
"""Nor is a case under `SHORT_LAUNCH_US` timed if the longest case takes this many times as long. Chosen."""
UNTIMED_CASE_WEIGHT: Final = 0.005
"""Nor is a captured case whose calls take a smaller part of the time of all calls. Chosen."""
SEGMENT_US: Final = 100.0
"""Least length of a segment, all launches together. Chosen: 200 steps of an event timer of 0.5 us (CUDA's manual)."""
LEAST_LAUNCHES: Final = 4
"""Launches in a segment of launches under `TWO_LAUNCHES_US`. Chosen: a median needs three."""
MOST_LAUNCHES: Final = 32
"""Launches in a segment. Chosen: more than ten of the shortest one fill `SEGMENT_US`."""
TWO_LAUNCHES_US: Final = 1000.0
"""From this length on a segment has two launches. Chosen: noise of a launch falls with its length."""
ONE_LAUNCH_US: Final = 2000.0
"""From this length on a segment has one launch."""
FLUSH_L2_FACTOR: Final = 2
"""Size of a flush, in L2 caches. Chosen: lines go to sets by a hash, so one cache's size could leave some."""
FLUSH_US: Final = 45.0
"""Microseconds of a flush, for what a segment costs; measured on an H200."""
PLACES: Final = 16
"""Places of memory that blocks take in turn: their scatter of 0.33 % averages down to 0.08 % (`placement`), and to
0.12 % for the ratio of two versions."""
FIRST_LOOK_PLACES: Final = 8
"""Places that the launches of a first look work in at least. Chosen: half of `PLACES`, which the second look takes."""
PLACES_MEMORY_SHARE: Final = 1 / 8
"""Share of free GPU memory for the places of one version. Chosen: two versions and the oracle fit beside them."""
EAGER_SPIN_FACTOR: Final = 1.5
"""Launches that cannot be captured wait behind a kernel that spins for this many times their host time. Chosen."""
EAGER_SPIN_SLACK_US: Final = 50.0
"""Host microseconds added to each launch for that. Chosen: flush and two events."""
MOST_SPIN_US: Final = 50_000.0
"""Longest spin. Chosen: a display's watchdog takes seconds."""
SEGMENT_DEADLINE_SECONDS: Final = 30.0
"""Deadline of one segment, which takes milliseconds. Chosen."""

# Slow baselines (`judge/measure/cost.py`)

SLOW_LAUNCH_SECONDS: Final = 0.1
"""Length of a baseline's launch from which the number of launches is limited. Chosen: a judgement has about 150."""
SLOW_BUDGET_SECONDS: Final = 20.0
"""Seconds for all launches of such a judgement, with the baseline's measurement. Chosen: users wait that long."""
SLOW_INPUTS_SHARE: Final = 0.3
"""Share of these for the inputs that the baseline is tried on. Chosen: timing needs the rest."""
SLOW_LEAST_PAIRS: Final = 2
"""Pairs of launches in a look, at least: of one there is no deviation."""
SLOW_MOST_PAIRS: Final = 4
"""Pairs of launches in a look, at most. Chosen: `MIN_BLOCKS`, after which quicker baselines are first decided on."""
SLOW_DOUBT_LAUNCHES: Final = 3
"""Launches of either side for checking a gain: by an outside clock, a trace, a call by the host."""
SLOW_CHECK_LAUNCHES: Final = 4
"""Launches of a candidate whose outputs are compared before, during and after timing."""
PLACE_SCATTER_SHARE: Final = 3.3e-3
"""Standard deviation between single places of memory, as a share of the time (`placement`)."""

# Clocks and other users of the GPU

STEADY_CLOCK_SHARE: Final = 0.01
"""The SM clock is steady while `STEADY_CLOCK_READINGS` of it differ by less. Chosen: `DELTA`."""
STEADY_CLOCK_READINGS: Final = 3
"""Readings of the SM clock that warming up compares."""
WARM_UP_LEAST_SECONDS: Final = 0.01
"""Least time of warming up. Chosen."""
WARM_UP_MOST_SECONDS: Final = 0.3
"""Most time of warming up. Chosen: blocks are paired, so the remaining drift cancels."""
CLOCK_JUMP_SHARE: Final = 0.05
"""A block in which one side's SM clock moved by more does not count. Chosen: pairing no longer cancels a step."""
PROBED_MULTIPROCESSORS: Final = 16
"""Multiprocessors whose clock is read; their median counts."""
SHARED_BUSY_PERCENT: Final = 5.0
"""Load by other processes from which a GPU counts as shared. Chosen."""
QUIET_SAMPLE_SECONDS: Final = 0.2
"""A younger sample of the driver may still cover time before a model server was quiet."""

# The clock out of reach of the candidate

OUTSIDE_CLOCK_BASELINE_MS: Final[Mapping[str, float]] = MappingProxyType({"short": 10.0, "cold": 20.0})
"""Milliseconds of the baseline, on each timed case, under the parent's clock. Chosen: a few readings take 0.5 ms each,
give or take 0.1 ms, which is 3 % of it at most; of short segments other work takes four times as long."""
OUTSIDE_CLOCK_READINGS: Final = 3
"""Segments of them whose times are read; the others run without a pause. Chosen: a median needs three."""
OUTSIDE_CLOCK_AGREEMENT_SHARE: Final = 0.08
"""Share by which a claimed total may fall short of the parent's clock. Chosen: clocks differ by less, lies by more."""
OUTSIDE_CLOCK_LOOKS: Final = 5
"""Fewest measurements by the parent's clock to refute a claim. Other load only adds time: the least counts."""
OUTSIDE_CLOCK_DOUBT_SECONDS: Final = 2.0
"""Fewest seconds for those measurements. Chosen: a busy machine may suspend this process for a whole second."""
FURTHER_PROCESS_PAIRS: Final = 3
"""Further processes of both sides, one pair after another, that are asked before anybody is refused for what this clock
shows. Measured: on a rented H200 one process in four has calls that take 25 to 35 us longer for as long as it lives."""
UNTIMED_CASE_LAUNCHES: Final = 4
"""Launches of a case that is not timed, in each of three segments. Chosen: as many as `LEAST_LAUNCHES`."""
UNTIMED_CASE_FACTOR: Final = 2.0
"""Largest ratio of a candidate's time to the baseline's on a case that is not timed, ... Chosen."""
UNTIMED_CASE_SLACK_US: Final = 5.0
"""... plus this many microseconds. Chosen: the baseline's time there is mostly launching."""
HOST_TIME_SLACK_US: Final = 20.0
"""Host time that a candidate's eager call may take longer, beyond its gain, ... Chosen: Python launchers scatter."""
HOST_TIME_SLACK_SHARE: Final = 0.10
"""... and as a share of the baseline's host time."""
HOST_TIME_LAUNCH_US: Final = 10.0
"""Host time of a launch through our own launchers beyond what C++ takes, microseconds. Measured: 10.3 in Python."""
FRESH_INPUTS_RATIO: Final = 1.1
"""Largest ratio of a first launch on new inputs to one on known inputs, relative to the baseline's ratio. Chosen."""
FRESH_INPUTS_SLACK_US: Final = 2.0
"""Microseconds that it may always take longer. Chosen: four times the layout bias."""
FRESH_INPUTS_LAUNCHES: Final = 5
"""First launches on inputs never seen; their median counts, and an accusation needs as many again that say the same."""
FRESH_LAUNCHES_COMPARED: Final = 6
"""Most launches of a case in a confirmation whose outputs are compared. Chosen: a reference may be slow."""
FRESH_COMPARED_SHARE: Final = 0.3
"""Chance of each sample of a confirmation that the output of one launch in it is compared. Chosen."""
FRESH_REPEATED_SHARE: Final = 0.5
"""Chance of each other sample that all its launches are repeated in another process. Chosen: with twenty samples of
eight, a candidate that fakes one launch in twenty goes undetected once in fifty times."""
RENEWAL_SECONDS: Final = 1.5
"""Seconds for drawing inputs anew in one confirmation. Chosen: the confirmation itself takes as long at most."""
OUTSIDE_CLOCK_LOOK_MS: Final = 250.0
"""Longest look by the parent's clock at one side of a case, milliseconds, flushes included. Chosen."""
HOST_TIME_CALLS: Final = 20
"""Eager calls in one try, at most. Chosen: a call of 10 us is above the parent's own message then."""
HOST_TIME_TRY_US: Final = 5000.0
"""Length of a try, microseconds, beyond which it has fewer calls. Chosen."""
HOST_TIME_TRIES: Final = 5
"""Tries on each side; the least counts. Chosen: other load only adds time."""
EAGER_GAIN_SEEN_SHARE: Final = 0.5
"""Share of a gain that the parent's clock must show where launches cannot be captured. Chosen."""
EMULATED_SAMPLE_INSTRUCTIONS: Final = 4_000
"""Instructions that sampled blocks of one timed launch execute together. Chosen: about a second of the emulator's."""
EMULATED_SAMPLE_SECONDS: Final = 20.0
"""Deadline of a sample of blocks of one timed launch on the emulator. Chosen: tools beside it take as long."""
SAMPLED_INPUT_BYTES: Final = 256 << 20
"""Inputs of a timed case of which a sample of blocks is emulated. Chosen: the CPU has to draw them."""
PEAK_BANDWIDTH_FACTOR: Final = 1.2
"""Ratio of the peak bandwidth, if unknown, to that of a copy: reading alone is a quarter faster (H200)."""
BANDWIDTH_BYTES: Final = 1 << 30
"""Bytes of the copy that measures bandwidth. Chosen: far beyond any L2 cache."""
BANDWIDTH_REPEATS: Final = 6
"""Repeats of that copy; the fastest counts."""

# Launches, as the kernel trace shows them

LEAST_OWN_SHARE: Final = 0.5
"""Beside a baseline with library compute, own kernels take this share of the rest at least. Chosen."""
SHORT_CLAIM_SHARE: Final = 0.75
"""Least ratio of claimed time to the kernels' time in the trace. Chosen."""
TRACE_LOOKS: Final = 5
"""Traces that all show longer kernels than were claimed before anybody is accused. Chosen."""
TRACE_SLACK_US: Final = 2.0
"""Microseconds by which a trace makes a short kernel look longer."""
TRACE_OVERLAP_US: Final = 2.0
"""Microseconds by which two streams may overlap by the trace's own error."""

# Repeats, outputs, arguments

DETERMINISM_RUNS: Final = 3
"""Runs on the same inputs that must leave the same bits. Chosen: two could agree by chance."""
HELD_OUTPUTS: Final = 4
"""Outputs that keep their values while later ones are made. Chosen: buffers used in turn are seldom more."""
HELD_OUTPUTS_MEMORY_SHARE: Final = 0.05
"""Share of the GPU's memory for those; the first and the latest are always kept. Chosen."""
VARIED_ARGUMENTS: Final = 16
"""Arguments that are varied one by one. Chosen: a kernel seldom has more."""
VARIED_WEIGHTS_SECONDS: Final = 5.0
"""Seconds for weights one by one, where all are varied together too. Chosen: convolutions in float64."""
FAMILIES_PER_TIMED_CASE: Final = 2
"""Input families, by chance, for each timed case beyond the plain one, whatever time they take. Chosen."""
FURTHER_INPUTS_SECONDS: Final = 3.0
"""Seconds of a session's opening for all other families on larger cases, and for values of integers and bools after the
first. Chosen: most references take milliseconds; convolutions in float64 take seconds, and a session opens no later."""
FURTHER_CHECKS_LEAST: Final = 4
"""Of these so many are tried in each check, whatever time they take: on a busy machine few use it up. Chosen."""
FURTHER_CHECKS_SECONDS: Final = 0.5
"""Seconds for these in one check of a candidate, and again for each recording of it, by chance. Chosen: half of what a
verdict takes; right answers that do not fit in memory are made anew each time."""
GUARD_BYTES: Final = 16 << 10
"""Guard before and past each tensor. Chosen: a row of 4,096 floats."""
POISON_BYTE: Final = 0xFF
"""Byte that fills unwritten memory: NaN in all floating-point types, -1 in integers."""

# Errors, in units of eps(dtype) * (|expected| + rms(expected))

FLOOR_MAX_UNITS: Final = 4.0
"""Units by which an element may always be off. Chosen: rounding once costs half a unit, a short chain a few."""
FLOOR_RMS_UNITS: Final = 1.0
"""Units by which the root mean square may always be off."""
FLOOR_PARTS_UNITS: Final = 6.0
"""The same for sums in float32: a product in parts of TF32 leaves out three times 2^-22 of itself at most."""
FLOOR_MAX_BY_ROOT: Final = 1.0
"""So many by the root of the number of terms: the largest error among 2.6 million loops over 768 normal terms was 0.84,
and a judgement compares up to a hundred million."""
FLOOR_RMS_BY_ROOT: Final = 0.1
"""The same for the root mean square: that of a loop was 0.07 to 0.09 (`summation_errors`)."""
GROWN_RMS_BY_ROOT: Final = 0.29
"""The same for coarse families, times how far partial sums exceed the last: 1 / sqrt(12), the deviation of what rounds
evenly (model of Higham and Mary, SIAM J. Sci. Comput. 41, 2019)."""
GROWTH_SAMPLE_ELEMENTS: Final = 1 << 22
"""Elements of an input, in whole rows, that tell how far. Chosen: each row is summed up once in float64."""
FLOOR_MOST_TERMS: Final = 1 << 17
"""Number of terms beyond which floors stay the same. Chosen: no thread of a GPU adds up more one after another, and
units of 16 million uniform terms come out some 800 apart, where the floor for one of them is 190."""
STRENGTH_FURTHER_DRAWS: Final = 3
"""Further inputs whose answer has to pass before it is said that the answer to other inputs would. Chosen."""
RMS_SPREAD_SIGMAS: Final = 4.75
"""Standard deviations that a normal number exceeds once in a million times."""
TERMS_INPUTS: Final = 3
"""Inputs, largest first, whose changed element tells how many terms an output has. Chosen: each takes a run."""
TERMS_CHANGED_UNITS: Final = 4096.0
"""Units by which an output has changed then. Chosen: sums in any order are not so far off."""
WIDE_FLOORS_UNITS: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {"float64": (128.0, 32.0), "float32": (128.0, 32.0), "float16": (32.0, 8.0), "bfloat16": (8.0, 2.0)}
)
"""Floors (largest, RMS) for coarse families, and beside library code: there honest loops over a million terms were up
to 66 units off in float32, honest versions of coarse families 62 (RMS 10) in float32 and 18 (RMS 4.5) in float16."""
TABLE_TOLERANCES: Final = MappingProxyType({"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2})
"""Relative errors that a baseline may make where nothing better is known (KernelBench v0.2; float64 chosen)."""
OTHER_TOLERANCE: Final = 1e-1
"""The same for types that are not in the table, 8-bit floats. Chosen: they have three bits and a sign."""
MODEL_MAX_TOLERANCE: Final = 1.0
"""The same for a single element of a whole model: among millions a few cancel. Chosen."""
MODEL_RMS_TOLERANCE: Final = 1e-1
"""The same for a whole model's root mean square: TF32 products are 5e-4 off, and that grows from layer to layer."""
CPU_SLACK: Final = 4.0
"""Factor on allowed errors beside PyTorch on a CPU, which sums in float64 or in blocks. Chosen."""
ROUNDING_FACTOR: Final = 64.0
"""Error, in multiples of the bound, beyond which it is not reported in units: it is no precision issue. Chosen."""
BRINK_GAP: Final = 2.0**6
"""Least factor between most elements and those that stand far apart, as -1e9 in masked scores. Chosen."""
BRINK_HIDDEN_SHARE: Final = 2.0**-6
"""Rounding those that stand apart hides errors of this share of most elements' size. Chosen."""
BRINK_LEAST_ELEMENTS: Final = 16
"""Elements that may be most. Chosen."""
BRINK_LEAST_ONE_IN: Final = 64
"""One element in so many may be most. Chosen."""
BRINK_SAMPLE_ELEMENTS: Final = 1 << 16
"""Elements of the sample that tells. Chosen."""
COMPARED_ELEMENTS: Final = 1 << 24
"""Elements compared at a time. Chosen: their copies in float64 take 128 MiB each."""
COMPARED_BITS: Final = 1 << 28
"""Elements whose bits are compared at a time on a GPU. Chosen: it synchronises after each time."""

# Input families: how they change values

SHIFT_FACTOR: Final = 1.5
"""Factor of `shifted` inputs, ... Chosen: a layer norm is no identity then, and no value overflows."""
SHIFT_OFFSET: Final = 0.75
"""... plus this."""
LARGE_FACTOR: Final = 256.0
"""Factor of `large` inputs. Chosen: a square still fits float32."""
LARGE_FACTOR_FLOAT16: Final = 16.0
"""The same in float16, whose largest value is 65,504."""
TINY_POWER: Final = -8
"""Factor of `tiny` inputs, as a power of 2. Chosen: the inverse of `LARGE_FACTOR`."""
LARGE_SCALE_POWER: Final = 40
"""Factor of `vast` inputs, as a power of 2; `minute` inputs have its inverse. Chosen: squares fit float32."""
LARGE_SCALE_POWER_FLOAT16: Final = 12
"""The same in float16, whose largest number is 2^16 and whose smallest normal one 2^-14."""
ONE_HUGE_POWER: Final = 10
"""One element in each row is 2 to this power times its value. Chosen: its exp overflows if no maximum is taken off."""
OUTLIER_VALUE: Final = 24.0
"""Magnitude of planted outliers. Chosen: exp of it still adds up in float32."""
OUTLIERS_ONE_IN: Final = 1024
"""One element in so many is an outlier."""
OUTLIERS_AT_ENDS_ONE_IN: Final = 8
"""One element in so many at the end of each longer dimension is one, for loops that end too early."""
LONG_DIMENSION: Final = 16
"""Elements from which a dimension is a longer one."""
ABOVE_FACTOR: Final = 4.0
"""Factor of `above` and `below` inputs on the magnitude, ..."""
ABOVE_OFFSET: Final = 1.5
"""... plus this: minima and maxima that start from 0 or 1 are wrong then."""
ROW_PADDING_ELEMENTS: Final = 16
"""Elements between two rows of `padded` inputs. Chosen: 16 bytes or a multiple, so that rows stay as aligned."""
MISALIGNED_BYTES: Final = 8
"""Bytes past its alignment at which the one tensor of a `misaligned` family starts; one element, if that is larger.
Chosen: half of the widest load, so that a check for 8 bytes does not pass for one for 16."""
MISALIGNED_TENSORS: Final = 4
"""Tensors that are misaligned one at a time, the first ones. Chosen: a kernel that loads vectors seldom has more."""
MISALIGNED_ELSEWHERE: Final = 2
"""Of these so many, by chance, are tried on each case after the first. Chosen: each takes two launches of a candidate
and a recording, and most kernels have two or three tensors."""
TOUCHED_LEAST: Final = 4
"""Elements, at least, in which `touched` inputs differ from those before."""
TOUCHED_ONE_IN: Final = 4096
"""One element in this many differs. Chosen: samples of the inputs miss them."""
TOUCHED_STRETCH_ONE_IN: Final = 256
"""One in this many more, all adjacent: a row, if that is no longer. Chosen: no rounding tolerance covers a row."""
KEPT_ZERO_SHARE: Final = 0.25
"""Exact zeros that make up this share of a tensor are structure, as of a triangle, and stay zero. Chosen."""
SORTED_BY_CHANCE: Final = 1e-6
"""Rows that chance sorts less often than this are sorted on purpose, and stay so. Chosen."""
SYMMETRIC_LEAST_PAIRS: Final = 6
"""Opposite elements that differ from the first pair, for a symmetric matrix to be so on purpose. Chosen."""
SORTED_LEAST_ELEMENTS: Final = 3
"""Integers of a row that are sorted on purpose rather than by chance. Chosen."""
OTHER_VALUES_TRIED: Final = 6
"""Other values of one argument that are tried, at most. Chosen: each takes a run of the reference."""
OTHER_VALUES_CPU_BYTES: Final = 64 << 20
"""Inputs up to which other integers are tried on a CPU first, for they may be indices. Chosen."""

# Sizes: emulated runs, scaled problems, memory

EMULATED_INPUT_BYTES: Final = 1 << 20
"""Inputs of an emulated case. Chosen: larger ones take the emulator too long."""
OTHER_SIZES: Final = 6
"""Cases that a workload does not list and that a candidate has to be right on where the baseline is. Chosen: two of
each whole number where there are three of them, as of a matrix product."""
OTHER_SIZES_INPUT_BYTES: Final = 4 << 20
"""Inputs of such a case. Chosen: a million numbers take the emulator about a second."""
OTHER_SIZES_SECONDS: Final = 3.0
"""Processor seconds of the emulator's for them, of the baseline; a candidate may take twice as long. Chosen."""
OTHER_SIZE_SECONDS: Final = 1.0
"""Processor seconds of the baseline on one of them on the emulator, beyond which a candidate is spared it. Chosen:
beside other work one of 1.7 s took more than 8 s, and a gain waited for it; the GPU runs larger ones anyway."""
OTHER_SIZES_DEADLINE_SECONDS: Final = 8.0
"""Deadline of a run on one of them, which says nothing when it is over. Chosen: more than twice the seconds for all."""
NEAR_SIZES: Final = 3
"""Cases near the largest listed one that a confirmed gain has to be right on where the baseline is, on the GPU. Chosen:
each takes a run of both versions and of the reference."""
NEAR_SIZES_BYTES_RATIO: Final = 1.25
"""Bytes of their inputs, relative to those of the largest listed case, at most. Chosen: it fits in memory, too."""
EMULATED_SECONDS: Final = 1.5
"""Processor seconds for all emulated runs of one version, if the user sets none; the first is always made. Chosen."""
EMULATED_RUNG_BYTES: Final = 16 << 20
"""Inputs of a captured case on which the emulator finds out by what the function is right. Chosen: it runs it twice."""
EMULATED_CASE_BYTES: Final = 64 << 20
"""Inputs of the smallest case, beyond which `check` runs a few blocks on the emulator, and no case whole. Chosen: a
transpose of so many takes it 15 s, and other kernels more."""
EMULATED_WHOLE_BYTES: Final = 4 << 20
"""Inputs of the smallest case, beyond which the final look at a gain runs a few blocks on the emulator, and no case
whole. Chosen: a million numbers take it about a second, and sixteen million had held a gain up for a minute."""
EMULATED_TIMED_BLOCKS: Final = 4
"""Blocks of a timed launch that the emulator runs: the first, the last and others by chance. Chosen."""
PROBLEM_EMULATED_BYTES: Final = 1 << 18
"""Size to which a KernelBench problem is scaled for the emulator. Chosen."""
PROBLEM_SMALL_BYTES: Final = 1 << 17
"""Bytes of inputs and outputs below which a case is not made smaller: fewer values test less."""
PROBLEM_CPU_BYTES: Final = 1 << 28
"""Size of a problem that is still run on a CPU. Chosen."""
PROBLEM_TRIED_BYTES: Final = 1 << 26
"""Size of a problem that is tried out on a CPU to see whether its sizes fit together. Chosen."""
PROBLEM_LEAST_SIZE: Final = 4
"""Smaller constants are kernel sizes, strides and groups rather than extents."""
PROBLEM_LEAST_OF_MANY: Final = 8
"""The same where several are halved together."""
PROBLEM_MOST_PROBES: Final = 80
"""Sizes of a problem that are tried. Chosen."""
PROBLEM_WORTHWHILE_SHARE: Final = 0.9
"""A halved size that leaves more of the bytes is not what makes a case large. Chosen."""
JUDGED_MEMORY_SHARE: Final = 0.9
"""Share of free GPU memory that judging a problem may take. Chosen: the rest may be in pieces."""
LARGE_CASE_MEMORY_SHARE: Final = 0.25
"""Share of it beyond which a case keeps fewer tensors in memory."""
KEPT_DRAWS_MEMORY_SHARE: Final = 0.25
"""Share of it for past inputs and expected values. Chosen: they can be made again."""
KEPT_DRAWS_SESSIONS: Final = 3
"""Past inputs and expected values are taken to need at most so many times what judging a problem takes beside them.
Chosen: that is nine times the inputs and eleven times the outputs, and there are some 24 sets."""
RELEASED_BYTES: Final = 1 << 30
"""Unused memory of torch's, or what is made beside inputs, is given back from this size on. Chosen."""
SHORT_MEMORY_SHARE: Final = 0.35
"""Memory is given back between any two uses where a smaller share of the GPU's is free. Chosen."""

# Final checks of a confirmed gain

SANITIZER_CASES: Final = 3
"""Small cases whose launches compute-sanitizer repeats. Chosen."""
SANITIZER_SMALL_BYTES: Final = 16 << 20
"""Inputs of these together, beyond the first one."""
SANITIZER_RECORDED_BYTES: Final = 1 << 30
"""Inputs of a case whose launches are recorded. Chosen: they are written to a file."""
SANITIZER_SECONDS: Final = 20.0
"""Deadline of one tool; all four take 1.2 s on an H200 for small kernels (docs/verdicts.md, final checks)."""
SANITIZER_LARGE_SECONDS: Final = 10.0
"""The same where the recorded launches have more memory than small cases. Chosen: a transpose of 64 MiB takes 8 s, and
who waits for a gain would wait for what does not end."""
READY_TOOLS_CORES: Final = 8
"""Cores from which on its processes are kept ready. Chosen: starting the four keeps as many cores busy for 2 s."""
READY_TOOLS_FREE_BYTES: Final = 16 << 30
"""Free memory of the GPU from which on they are. Chosen: four contexts take about 2 GiB."""
SANITIZER_PADDING_BYTES: Final = 256
"""Padding that memcheck puts round each buffer. Chosen: a few vector loads."""
SUSTAINED_LEAD_SECONDS: Final = 0.15
"""A candidate runs for so long before its clock is looked at. A power limit lowers it within 0.1 s on an H200."""
SUSTAINED_PROBE_SECONDS: Final = 0.1
"""Length of the run that tells its clock. Chosen: NVML has a new reading of the power after each tenth of a second."""
CLOCK_HELD_SHARE: Final = 0.003
"""A clock that is lower by less is said to have held: readings of a steady one differ by as much on an H200."""
SUSTAINED_STRETCH_SECONDS: Final = 0.25
"""Length of one side's stretch. Chosen: the counter of energy, which moves every tenth of a second, moves twice."""
SUSTAINED_TURNS: Final = 3
"""Turns of ABBA, at most; further ones only where those before show a loss."""
SUSTAINED_READING_SECONDS: Final = 0.005
"""Time between two readings of power and energy. Chosen: a twentieth of a step of the counter's."""
SUSTAINED_SLACK_SECONDS: Final = 30.0
"""Deadline of a stretch beyond its length."""
BURST_LAUNCHES: Final = 1000
"""Launches that are enqueued together under a steady load, at most."""
BURST_US: Final = 5000.0
"""Length of such a burst, about. Chosen: one waits while another runs, and the queue never empties."""

# Processes: deadlines and limits; what runs longer is stopped, and the verdict says so

FIRST_RUN_SECONDS: Final = 60.0
"""Deadline of a first launch, which may compile. Chosen."""
REHEARSAL_SECONDS: Final = 10.0
"""Least deadline of a candidate's first launch; more if the baseline took long. Chosen."""
WORKER_ANSWER_SECONDS: Final = 60.0
"""Deadline of an answer that runs nothing of the user's. Chosen."""
LOAD_SECONDS: Final = 120.0
"""Deadline of loading a workload: a problem is tried out on several sizes first. Chosen."""
BUILD_SECONDS: Final = 120.0
"""Deadline of a build. Chosen."""
EXTENSION_BUILD_SECONDS: Final = 600.0
"""Deadline of a build with torch's own headers. Chosen."""
LET_GO_SECONDS: Final = 5.0
"""Time for a worker to end by itself, and for its memory to be free again. Chosen."""
MOST_PROCESSES: Final = 64
"""Processes of one worker's session. Chosen."""
MOST_DISK_BYTES: Final = 8 << 30
"""Files of one worker's session. Chosen."""
MOST_LOG_BYTES: Final = 64 << 20
"""Log of one worker, which then starts anew. Chosen."""
ROOMY_BYTES: Final = 32 << 30
"""Free memory of a GPU, and half of all that it has, from which on more than a few warm workers are kept ready. Chosen:
each takes about half a GiB; 18 sessions that kept eight each, whatever was free, filled an H200's 140."""
WATCH_SECONDS: Final = 0.25
"""Time between two looks at the sessions of workers. Chosen."""
