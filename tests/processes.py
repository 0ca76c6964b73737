"""Functions called in two processes of torch.distributed."""

import multiprocessing
import os
import socket

import torch
import torch.multiprocessing

# The server of the processes imports these once, instead of every process.
multiprocessing.set_forkserver_preload(["probagg.dpac.dpac", "sklearn.datasets"])


def run_two(function, *arguments):
    """Call `function(rank, *arguments)` in two processes, with the variables of torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(
        _begin, args=(port, function, arguments), nprocs=2, start_method="forkserver"
    )


def _begin(rank, port, function, arguments):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    torch.set_num_threads(1)
    function(rank, *arguments)
