"""Items of a generator, made ahead in a thread."""

import threading

import pytest

from nnlo_lib.data.loading.loader import prefetched


def test_items_come_in_order():
    assert list(prefetched(iter(range(100)), 3)) == list(range(100))
    assert list(prefetched(iter(()), 3)) == []


def test_what_the_source_raises_comes_in_its_turn():
    def source():
        yield 1
        raise OSError("the disk is gone")

    items = prefetched(source(), 3)
    assert next(items) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)
    assert "prefetch" not in {thread.name for thread in threading.enumerate()}


def test_no_more_than_its_depth_is_made_ahead():
    made, may_go_on = [], threading.Semaphore(0)

    def source():
        for item in range(100):
            made.append(item)
            may_go_on.release()
            yield item

    items = prefetched(source(), 2)
    next(items)
    # One item is taken, two are in the queue, and the thread holds one.
    for _ in range(4):
        assert may_go_on.acquire(timeout=200)
    assert not may_go_on.acquire(timeout=0.1)
    items.close()
    assert len(made) <= 5


def test_closing_early_ends_the_thread():
    endless = prefetched(iter(int, 1), 2)
    next(endless)
    endless.close()
    assert "prefetch" not in {thread.name for thread in threading.enumerate()}
