"""Runs a function as several ranks: as threads of this process, or as processes of their own."""

import multiprocessing
import threading
import traceback


def as_threads(world, function, *arguments):
    """function(rank, world, *arguments) -> what each rank returned or raised."""
    results = [None] * world

    def run(rank):
        try:
            results[rank] = function(rank, world, *arguments)
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive(), "a rank hangs"
    return results


def as_processes(world, function, *arguments):
    """The same in spawned processes; a process that dies leaves None."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=_process, args=(queue, rank, world, function, arguments))
                 for rank in range(world)]
    for process in processes:
        process.start()
    results = [None] * world
    for process in processes:
        process.join(100)
        if process.is_alive():
            process.kill()
            raise AssertionError("a rank hangs")
    while not queue.empty():
        rank, result = queue.get(timeout=5)
        results[rank] = result
    return results


def _process(queue, rank, world, function, arguments):
    try:
        result = function(rank, world, *arguments)
    except BaseException as error:
        traceback.print_exc()
        result = error
    queue.put((rank, result))
