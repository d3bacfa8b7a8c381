"""Large messages between ranks of one host, through memory that both ranks map.

MPI moves a large message only while sender and receiver both poll, which starves a server that shares its
cores with its workers. Here the sender copies the vector into a mailbox and returns; the receiver copies it
out later.
"""

import mmap
import os
import socket
from collections import defaultdict
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
