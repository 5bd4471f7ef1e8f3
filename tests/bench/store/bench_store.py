"""Measures rdzvd against PyTorch's own store server and against a raw echo of the same bytes.

    bench_store.py BUILD      a build folder with rdzvd, store_load, store_get and store_echo

The servers take turns within each round, in changing order; a figure is the median over rounds,
a ratio the median of the rounds' ratios. The table goes to standard output, the progress to
standard error; the last line is one JSON object. QUICK=1 is shorter and noisier.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import servers
from gets import measure_gets
from memory import measure_limit, measure_memory
from operations import measure_operations
from rounds import BUILD, CPUS, MILLISECONDS, ROUNDS, SERVER_CPU, print_table
from storms import measure_fan_out, measure_storms, measure_unfair


def main() -> None:
    out: dict[str, float] = {}
    # An exception, so that the servers are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench-store: terminated"))
    begin = time.time()
    load_before = os.getloadavg()[0]
    with servers.echo(BUILD, SERVER_CPU) as echo, servers.rdzvd(BUILD, SERVER_CPU) as ours, \
            servers.torch(cpu=SERVER_CPU) as torch:
        title = torch.title
        measure_operations([echo, ours, torch], out)
        measure_storms([echo, ours, torch], out)
        measure_unfair()
        measure_fan_out([ours, torch], out)
        measure_gets(ours, torch, out)
    measure_memory(out)
    measure_limit()
    print_table(f"rdzvd, {title}, libuv echo; {ROUNDS} rounds of {MILLISECONDS} ms; "
                f"{len(CPUS)} CPUs{', server and load pinned' if SERVER_CPU is not None else ''}; "
                f"load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after; "
                f"{time.time() - begin:.0f} s")
    print(json.dumps({key: float(f"{value:.4g}") for key, value in out.items()}))


main()
