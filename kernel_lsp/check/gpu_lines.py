"""The time of a file's lines on a GPU: samples by ncu where its counters may be read, else the price of each line."""

from dataclasses import dataclass

from kernel_lsp.check.priced import KernelPrices, price
from kernel_lsp.check.recorded import recorded_launches
from kernel_lsp.check.sampled import KernelSamples, sample, why_not_sampled
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.inputs.findings import RUN_ERRORS
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.target import Target
from kernel_lsp.runner.pool import Pool


@dataclass(frozen=True, slots=True)
class GpuLines:
    """The time of a file's lines on a GPU.

    Attributes:
        device: name of the GPU; empty if there is nothing.
        case: the case that was launched, as a person would write it.
        samples: of each kernel, in the order of their first launches.
        not_sampled: why there are none; empty otherwise, and where there is no GPU.
        prices: of each kernel.
        not_priced: why there are none, if they were wanted.
    """

    device: str = ""
    case: str = ""
    samples: tuple[KernelSamples, ...] = ()
    not_sampled: str = ""
    prices: tuple[KernelPrices, ...] = ()
    not_priced: str = ""


async def measure_lines(pool: Pool, target: Target, settings: Settings, gpu: Gpu, *, prices: bool = False) -> GpuLines:
    """Measure the lines of the kernels that a file's workload launches, on its largest case that can be recorded.

    Args:
        pool: of workers.
        target: the file with its workload.
        settings: those of its folder.
        gpu: where it runs.
        prices: whether to find prices too where samples can be had.
    """
    refused = why_not_sampled()
    session = Session(pool, target, settings, gpu)
    try:
        await session.open()
        async with recorded_launches(session) as recording:
            samples, not_sampled = ((), refused) if refused else await sample(session, recording)
            found, not_priced = await price(session, recording) if prices or not samples else ((), "")
            return GpuLines(gpu.name, recording.case, samples, not_sampled, found, not_priced)
    except RUN_ERRORS as error:
        return GpuLines(not_sampled=str(error))
    finally:
        await session.close()
