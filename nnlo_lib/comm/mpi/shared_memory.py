"""Memory that ranks of one host map: mailboxes of large messages, and buffers of sums.

MPI moves a large vector only while all of its ranks poll, which starves ranks that share cores, such as a server
and its workers. Here the sender copies a vector into a mailbox and returns; the receiver copies it out later. For
a sum each rank copies its vector to a buffer, adds its part of all buffers in rank order, and copies the parts
that the other ranks added: two to three times as fast as gloo.
"""

import mmap
import os
import socket
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Address = NDArray[np.int64]
Array = NDArray[Any]
WaitUntil = Callable[[Callable[[], bool]], None]  # polls until true
MAILBOX_NAME = "nnlo"  # name of the anonymous files in /proc
SHARED_MEMORY_MIN_BYTES = 65_536  # bytes from which two copies are faster than a message


def shared_memory_domain() -> str:
    """Return a name shared by the processes that can open each other's files in /proc and ring each other's doorbells.

    On other systems every process has a name of its own.
    """
    try:
        # A pid names the same process only within a PID namespace; only the same user may open its files.
        spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "net")]
        return f"{socket.gethostname()} {' '.join(spaces)} {os.getuid()}"
    except OSError:
        return f"{socket.gethostname()} {os.getpid()}"


class SharedMailbox:
    """Memory of this process that other processes of the host can map: an anonymous file.

    The kernel frees the memory when the last process has closed and unmapped the file. The address is [pid, file
    descriptor, size in bytes, number].
    """

    def __init__(self, size: int, number: int) -> None:
        self.number = number
        self._file = os.memfd_create(MAILBOX_NAME)
        os.ftruncate(self._file, size)
        self.memory = _view(self._file, size)
        self.address = np.array([os.getpid(), self._file, size, number], np.int64)
        self.receipt = MPI.REQUEST_NULL  # complete when the content has been fetched by all its readers
        self.is_summed = False  # between the begin of a sum and the start of its receipt
        self.addresses: Address = np.empty(0, np.int64)  # in sums, of all ranks' mailboxes; MPI writes them

    @classmethod
    def of_pool(cls, pool: "list[SharedMailbox]", size: int) -> "SharedMailbox":
        """Return a mailbox for `size` bytes whose last content has been fetched; a new one if the pool has none."""
        for mailbox in pool:
            if not mailbox.is_summed and mailbox.memory.size >= size and mailbox.receipt.Test():
                return mailbox
        pool.append(cls(size, len(pool)))
        return pool[-1]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class SharedMailboxes:
    """Pools of mailboxes, one pool per receiving rank, one mailbox per message that has not been fetched.

    Mailboxes are reused and stay allocated until `close`. A receipt is an empty message on `receipts`, an MPI
    communicator that nothing else uses, tagged with the number of the mailbox.
    """

    def __init__(self, receipts: MPI.Comm) -> None:
        self._receipts = receipts
        self._mine: defaultdict[int, list[SharedMailbox]] = defaultdict(list)
        self._visited: dict[tuple[int, ...], Bytes] = {}

    def close(self) -> None:
        """Close all mailboxes."""
        for pool in self._mine.values():
            for mailbox in pool:
                mailbox.close()

    def deposit(self, array: NDArray[Any], to: int) -> Address:
        """Put `array` into a mailbox for rank `to`, a new one if no mailbox is free; return its address."""
        mailbox = SharedMailbox.of_pool(self._mine[to], array.nbytes)
        mailbox.memory[: array.nbytes] = array.view(np.uint8)
        mailbox.receipt = self._receipts.Irecv(np.empty(0, np.uint8), to, mailbox.number)
        return mailbox.address

    def collect(self, array: NDArray[Any], address: Address, source: int) -> MPI.Request:
        """Overwrite `array` by a mailbox of rank `source` and send the receipt; return the request of the receipt."""
        array.view(np.uint8)[:] = _mapped(address, self._visited)[: array.nbytes]
        return self._receipts.Isend(np.empty(0, np.uint8), source, address.item(3))


class SharedMemoryAllreduce:
    """Mailboxes that all ranks read: first with a rank's vector, then with the sum in its part; one for each sum in progress.

    Nothing else uses the MPI communicator `signals`, whose ranks can map each other's memory.
    """

    def __init__(self, signals: MPI.Comm) -> None:
        self._signals, self._rank, self._size = signals, signals.Get_rank(), signals.Get_size()
        self._mine: list[SharedMailbox] = []
        self._mapped: dict[tuple[int, ...], Bytes] = {}

    def close(self) -> list[NDArray[np.int64]]:
        """Close the buffers; return the arrays that MPI may still write into if a sum is in progress."""
        for mailbox in self._mine:
            mailbox.close()
        return [mailbox.addresses for mailbox in self._mine]

    def begin_reduction(self, array: Array, parts: list[slice], gathers: bool) -> Callable[[WaitUntil], None]:
        """Publish `array` (P,); return a function that waits and overwrites this rank's part with the sum over ranks.

        If `gathers`, it overwrites the other parts, too: through the same mailboxes, which stay in the cache.
        """
        mine = parts[self._rank]

        def add(memories: list[Bytes], wait: WaitUntil) -> None:
            vectors = [memory[: array.nbytes].view(array.dtype) for memory in memories]
            first, *others = (vector[mine] for vector in vectors)
            total = np.add(first, others[0], out=array[mine])
            for part in others[1:]:
                np.add(total, part, out=total)
            if not gathers:
                return
            # Other ranks do not read this part of the mailbox before the barrier, and the sum only after it.
            vectors[self._rank][mine] = total
            wait(self._signals.Ibarrier().Test)
            for rank in set(range(self._size)) - {self._rank}:
                array[parts[rank]] = vectors[rank][parts[rank]]

        return self._publish(array, add)

    def gather(self, array: Array, parts: list[slice], wait: WaitUntil) -> None:
        """Overwrite the other ranks' parts of `array`."""

        def copy(memories: list[Bytes], _: WaitUntil) -> None:
            for rank in set(range(self._size)) - {self._rank}:
                part = array[parts[rank]]
                part[:] = memories[rank][: part.nbytes].view(array.dtype)

        self._publish(array[parts[self._rank]], copy)(wait)

    def _publish(
        self, array: Array, use: Callable[[list[Bytes], WaitUntil], None]
    ) -> Callable[[WaitUntil], None]:
        """Put `array` into memory; return a function that waits for all ranks and calls `use` with their memory."""
        # At least one byte, because an empty file cannot be mapped.
        mailbox = SharedMailbox.of_pool(self._mine, max(array.nbytes, 1))
        mailbox.is_summed = True
        mailbox.memory[: array.nbytes] = array.view(np.uint8)
        mailbox.addresses = addresses = np.empty((self._size, mailbox.address.size), np.int64)
        # Also the signal that all vectors are in place: it completes after every rank has started it.
        published = self._signals.Iallgather(mailbox.address, addresses)

        def finish(wait: WaitUntil) -> None:
            wait(published.Test)
            use([_mapped(address, self._mapped) for address in addresses], wait)
            # Not waited for: the next call takes another mailbox if ranks still read this one.
            mailbox.receipt = self._signals.Ibarrier()
            mailbox.is_summed = False

        return finish


def _mapped(address: Address, known: dict[tuple[int, ...], Bytes]) -> Bytes:
    """Return the memory at an address; `known` keeps the mappings, so that later vectors need no system call."""
    key = tuple(address.tolist())
    if key not in known:
        known[key] = map_remote(address)
    return known[key]


def map_remote(address: Address) -> Bytes:
    """Map the mailbox of another process, given its address."""
    pid, file, size, _ = address.tolist()
    handle = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR | os.O_NONBLOCK)
    try:
        name = os.readlink(f"/proc/self/fd/{handle}")
        # A later process may have the pid, and root can write the files of all users.
        if os.fstat(handle).st_uid != os.geteuid() or not name.startswith(f"/memfd:{MAILBOX_NAME}"):
            raise OSError(f"file {file} of process {pid} is not a mailbox of this user")
        return _view(handle, size)
    finally:
        # The mapping stays valid without the file descriptor.
        os.close(handle)


def _view(file: int, size: int) -> Bytes:
    return np.frombuffer(mmap.mmap(file, size), np.uint8)
