"""Memory that ranks of one host map: mailboxes of large messages, buffers of sums.

Large messages between ranks of one host, through memory that both ranks map.

MPI moves a large message only while sender and receiver both poll, which starves a server that shares its
cores with its workers. Here the sender copies the vector into a mailbox and returns; the receiver copies it
out later.

Sums over the ranks of one host, through memory that all of them map.

MPI moves large vectors in pieces, for which every rank must keep polling; ranks that share cores cannot. Here
each rank copies its vector to a buffer of its own, adds its chunk of all buffers in rank order, and copies
the chunks that the other ranks added: two to three times as fast as gloo.
"""

import mmap
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Address = NDArray[np.int64]
MAILBOX_NAME = "nnlo"  # name of the anonymous files in /proc
SHARED_MEMORY_MIN_BYTES = 65_536  # bytes from which two copies are faster than a message


def shared_memory_domain() -> str:
    """Return a name shared by the processes that can open each other's files in /proc.

    On other systems every process has a name of its own.
    """
    try:
        # A pid names the same process only within a PID namespace; only the same user may open its files.
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"
    except OSError:
        return f"{socket.gethostname()} {os.getpid()}"


class SharedMailbox:
    """Memory of this process that other processes of the host can map: an anonymous file.

    The kernel frees the memory when the last process has closed and unmapped the file.

    Attributes:
        address: [pid, file descriptor, size in bytes, number].
        receipt: receive request, complete when the content has been fetched.
    """

    def __init__(self, size: int, number: int) -> None:
        self.number = number
        self._file = os.memfd_create(MAILBOX_NAME)
        os.ftruncate(self._file, size)
        self.memory = _view(self._file, size)
        self.address = np.array([os.getpid(), self._file, size, number], np.int64)
        self.receipt = MPI.REQUEST_NULL

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def fits(self, size: int) -> bool:
        """Return True if it has room for `size` bytes and its last content has been fetched."""
        return self.memory.size >= size and self.receipt.Test()

    def put(self, array: NDArray[Any], receipt: MPI.Request) -> None:
        """Copy `array` in; `receipt` completes when `array` has been fetched."""
        self.memory[: array.nbytes] = array.view(np.uint8)
        self.receipt = receipt


class SharedMailboxes:
    """Pools of mailboxes, one pool per receiving rank, one mailbox per message that has not been fetched.

    Mailboxes are reused and stay allocated until `close`.

    Args:
        receipts: an MPI communicator that nothing else uses; a receipt is an empty message, tagged with the
            number of the mailbox.
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
        mailbox = self._free(to, array.nbytes)
        mailbox.put(array, self._receipts.Irecv(np.empty(0, np.uint8), to, mailbox.number))
        return mailbox.address

    def _free(self, to: int, size: int) -> SharedMailbox:
        pool = self._mine[to]
        free = next((mailbox for mailbox in pool if mailbox.fits(size)), None)
        if free is None:
            free = SharedMailbox(size, len(pool))
            pool.append(free)
        return free

    def collect(self, array: NDArray[Any], address: Address, source: int) -> MPI.Request:
        """Copy a vector out of a mailbox and send the receipt; return the request of the receipt.

        Args:
            array: overwritten by the vector, (P,).
            address: address that the sender's `deposit` returned.
            source: rank of the sender.
        """
        key = tuple(address.tolist())
        # Mailboxes are reused: their mappings are kept, so that later messages need no system call.
        if key not in self._visited:
            self._visited[key] = map_remote(address)
        array.view(np.uint8)[:] = self._visited[key][: array.nbytes]
        return self._receipts.Isend(np.empty(0, np.uint8), source, address.item(3))


def map_remote(address: Address) -> Bytes:
    """Map the mailbox of another process, given its address.

    Raises:
        OSError: if the process has ended, or the file is not a mailbox of this user.
    """
    pid, file, size, _ = address.tolist()
    handle = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR | os.O_NONBLOCK)
    try:
        # A later process may have the pid, and root can write the files of all users.
        if os.fstat(handle).st_uid != os.geteuid() or not _is_mailbox(handle):
            raise OSError(f"file {file} of process {pid} is not a mailbox of this user")
        return _view(handle, size)
    finally:
        # The mapping stays valid without the file descriptor.
        os.close(handle)


def _is_mailbox(handle: int) -> bool:
    return os.readlink(f"/proc/self/fd/{handle}").startswith(f"/memfd:{MAILBOX_NAME}")


def _view(file: int, size: int) -> Bytes:
    return np.frombuffer(mmap.mmap(file, size), np.uint8)


Array = NDArray[Any]
WaitUntil = Callable[[Callable[[], bool]], None]  # polls until true


class SharedBuffer:
    """Memory of this rank that all ranks map: first its vector, then the sum in this rank's chunk."""

    def __init__(self, size: int) -> None:
        self.box = SharedMailbox(size, 0)
        self.addresses: NDArray[np.int64] = np.empty(0, np.int64)  # of all ranks' buffers; MPI writes them
        self.readers_done = MPI.REQUEST_NULL  # complete when every rank has copied the sum

    def fits(self, size: int) -> bool:
        """Return True if it has room for `size` bytes and every rank has copied its last sum."""
        return self.box.memory.size >= size and self.readers_done.Test()


class SharedMemoryAllreduce:
    """The shared buffers of all ranks; a rank has as many buffers as it has sums in progress.

    Args:
        signals: an MPI communicator that nothing else uses; all its ranks can map each other's memory.
    """

    def __init__(self, signals: MPI.Comm) -> None:
        self._signals, self._rank, self._size = signals, signals.Get_rank(), signals.Get_size()
        self._mine: list[SharedBuffer] = []
        self._mapped: dict[tuple[int, ...], Bytes] = {}

    def close(self) -> list[NDArray[np.int64]]:
        """Close the buffers; return the arrays that MPI may still write into if a sum is in progress."""
        for buffer in self._mine:
            buffer.box.close()
        return [buffer.addresses for buffer in self._mine]

    def begin_sum(self, array: Array) -> Callable[[WaitUntil], None]:
        """Publish `array` (P,) to all ranks.

        Return a function that, given a way to wait, overwrites `array` with the sum over ranks.
        """
        buffer = self._free(array.nbytes)
        buffer.box.memory[: array.nbytes] = array.view(np.uint8)
        buffer.addresses = addresses = np.empty((self._size, buffer.box.address.size), np.int64)
        # Also the signal that all vectors are in place: it completes after every rank has started it.
        published = self._signals.Iallgather(buffer.box.address, addresses)

        def finish(wait: WaitUntil) -> None:
            wait(published.Test)
            vectors = [self._map(address)[: array.nbytes].view(array.dtype) for address in addresses]
            chunks = _chunks(array.size, self._size)
            self._add(array, vectors, chunks[self._rank])
            # Chunks of the sum may be read only after their ranks have written them.
            wait(self._signals.Ibarrier().Test)
            for rank in set(range(self._size)) - {self._rank}:
                array[chunks[rank]] = vectors[rank][chunks[rank]]
            # Not waited for: the next sum takes another buffer if ranks still read this one.
            buffer.readers_done = self._signals.Ibarrier()

        return finish

    def _add(self, array: Array, vectors: Sequence[Array], mine: slice) -> None:
        """Add this rank's chunk in rank order.

        Args:
            array: this rank's vector, (P,); overwritten in the chunk.
            vectors: buffers of all ranks, by rank; this rank's buffer is overwritten in the chunk.
            mine: chunk of this rank.
        """
        first, *others = (buffer[mine] for buffer in vectors)
        total = np.add(first, others[0], out=array[mine])
        for part in others[1:]:
            np.add(total, part, out=total)
        # Other ranks do not read this chunk of the buffer before the barrier.
        vectors[self._rank][mine] = total

    def _free(self, size: int) -> SharedBuffer:
        free = next((buffer for buffer in self._mine if buffer.fits(size)), None)
        if free is None:
            free = SharedBuffer(size)
            self._mine.append(free)
        return free

    def _map(self, address: NDArray[np.int64]) -> Bytes:
        key = tuple(address.tolist())
        if key not in self._mapped:
            self._mapped[key] = map_remote(address)
        return self._mapped[key]


def _chunks(values: int, ranks: int) -> list[slice]:
    ends = np.cumsum([0, *(len(part) for part in np.array_split(np.empty(values, np.bool_), ranks))])
    return [slice(start, end) for start, end in pairwise(ends.tolist())]
