"""Prefetching: a thread computes the next items while the consumer uses the current one."""

from collections.abc import Generator, Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
QUEUE_PUT_TIMEOUT_S = 0.1  # interval at which the thread checks whether the consumer has stopped


class _Failed:
    """Queue item that carries an exception raised in the thread."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def prefetched(source: Iterator[T], depth: int) -> Generator[T, None, None]:
    """Yield the items of `source`; a thread computes up to `depth` items ahead.

    An exception of `source` is raised after the items that precede it. Closing the generator stops the thread
    and waits until it has exited.
    """
    ready: Queue[T | _Failed | None] = Queue(depth)
    stop = Event()
    thread = Thread(target=_fill, args=(source, ready, stop), daemon=True, name="prefetch")
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, _Failed):
                raise item.error
            yield item
    finally:
        stop.set()
        # A thread that waits in put() then continues at once and finds `stop` set.
        _drain(ready)
        thread.join()


def _fill(source: Iterator[T], ready: "Queue[T | _Failed | None]", stop: Event) -> None:
    try:
        for item in source:
            if not _put(item, ready, stop):
                return
        _put(None, ready, stop)
    except BaseException as error:  # the consumer raises it, also if it is not an Exception
        _put(_Failed(error), ready, stop)


def _put(item: "T | _Failed | None", ready: "Queue[T | _Failed | None]", stop: Event) -> bool:
    while not stop.is_set():
        try:
            ready.put(item, timeout=QUEUE_PUT_TIMEOUT_S)
        except Full:
            continue
        return True
    return False


def _drain(ready: "Queue[T | _Failed | None]") -> None:
    try:
        while True:
            ready.get_nowait()
    except Empty:
        return
