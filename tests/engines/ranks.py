"""The ranks of a group as forked processes of this one, so that an engine is imported once."""

import functools
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback

import coordinates
import models

SECONDS_MAX = 600


def run_ranks(count, function):
    """Calls `function(rank, store)` in a process each; `store` is a file to meet at.

    Raises if one of them failed, after all have ended: those that wait for it are stopped.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = pathlib.Path(folder) / "store"
        running = {}
        for rank in range(count):
            sys.stdout.flush()
            sys.stderr.flush()
            child = os.fork()
            if child == 0:
                _run_and_exit(function, rank, store)
            running[child] = rank
        _await_all(running)


def dump_loaded(case, folder, dump_rank, engine, how):
    """One case of an engine that loads checkpoints: the numbered one is written, each rank in
    `dump_rank(case, folder, checkpoint, rank, store)` dumps what it keeps of it, and the case is
    described, by `engine` (names and versions) and `how`.
    """
    config, quant = models.MODELS[case.model], case.options.get("quant")
    shapes = coordinates.names_and_shapes(config)
    scales = {}
    if quant:
        import codes

        scales = codes.scales_of(config, quant, shapes)
    coordinates.fresh_folder(folder)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = pathlib.Path(scratch) / "checkpoint"
        if quant:
            codes.write_checkpoint(checkpoint, config, quant, shapes, scales)
        else:
            coordinates.write_checkpoint(checkpoint, config, coordinates.numbered(shapes))
        dump = refusal_of(dump_rank) if case.refused else dump_rank
        run_ranks(case.ranks, functools.partial(dump, case, folder, checkpoint))
    if case.refused:
        return case.write_refusal(folder, config, engine)
    case.write_case(folder, config, shapes, engine, how, scales)


def refusal_of(dump_rank):
    """Like `dump_rank`, but of a case that the engine must refuse: what it says is written."""
    def refused(case, folder, checkpoint, rank, store):
        try:
            dump_rank(case, folder, checkpoint, rank, store)
        except ValueError as error:
            (folder / f"refused-{rank}").write_text(str(error))
        else:
            raise AssertionError(f"{case.name} is not refused")
    return refused


def write_loaded(case, folder, rank, model, facts):
    """What a rank's model has loaded. `facts` says which rank the engine means."""
    if quant := case.options.get("quant"):
        import codes

        tensors, kept = codes.kept(model, quant)
        facts = facts | {"kept": kept}
    else:
        tensors = coordinates.loaded_tensors(model)
    case.write_rank(folder, rank, tensors, facts)


def _run_and_exit(function, rank, store):
    status = 1
    try:
        # What engines print on the way would hide what matters here.
        sys.stdout = open(os.devnull, "w")
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        function(rank, store)
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)


def _await_all(running):
    failed, deadline = [], time.monotonic() + SECONDS_MAX
    while running:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            rank = running.pop(child)
            if status != 0:
                failed.append(rank)
        if failed or time.monotonic() > deadline:
            for other in running:
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)
            failed += list(running.values())
            break
        if not child:
            time.sleep(0.02)
    if failed:
        raise RuntimeError(f"rank {failed[0]} failed; with it ended: {failed[1:]}")


def join(rank, count, store):
    """Makes the process a member of a group over gloo."""
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=count)
