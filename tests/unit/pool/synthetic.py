"""Work without kernels, to see what becomes of lanes: `python -m tests.unit.pool.synthetic ADDRESS FOLDER NAME...`."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import RunnerError
from kernel_lsp.judge.record import Record
from kernel_lsp.pool.choice import opened_pool
from kernel_lsp.pool.protocol import Work
from kernel_lsp.pool.queue import LaneUnfitError, TaskQueue


class Errand(Record):
    """A task: `die` kills its lane, `break` breaks its workers, `meet` waits until two lanes have begun one.

    To `unfit` the GPU of the first lane that is given it is not fit.
    """

    name: str
    folder: Path


class ErrandDone(Record):
    name: str
    lane: str
    path: list[str]


async def run_errand(lane, errand, tell, _ahead):
    (errand.folder / f"{errand.name}.tries").open("a").write(f"{lane.where.lane}\n")
    if errand.name.startswith("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    if errand.name.startswith("break"):
        raise RunnerError("its workers broke")
    if errand.name.startswith("unfit") and len((errand.folder / f"{errand.name}.tries").read_text().split()) == 1:
        raise LaneUnfitError("others keep it busy, 60 % of the time")
    if errand.name.startswith("meet"):
        while len({line for file in errand.folder.glob("meet*.tries") for line in file.read_text().split()}) < 2:
            await asyncio.sleep(0.05)
    tell(ErrandDone(name=errand.name, lane=lane.where.lane, path=sys.path))


RUN_ERRAND = Work("tests.unit.pool.synthetic:RUN_ERRAND", Errand, ErrandDone, run_errand, lambda _: ())


def main() -> None:
    address, folder, *names = sys.argv[1:]
    done, failed, said = [], {}, []
    settings = load_settings(overrides={"pool.address": address})[0]
    with opened_pool(settings) as pool:
        queue = TaskQueue(
            [Errand(name=name, folder=Path(folder).absolute()) for name in names],
            lambda errand, error: failed.update({errand.name: str(error)}),
            name=lambda errand: errand.name,
        )
        asyncio.run(pool.run(RUN_ERRAND, queue, done.append, lambda *words: said.append(words)))
    print(json.dumps({"done": [answer.model_dump() for answer in done], "failed": failed, "said": said}))


if __name__ == "__main__":
    main()
