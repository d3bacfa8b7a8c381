"""Replay the recorded events of gossip algorithms in numpy."""

from helpers.least_squares import START, Momentum, gradient, rows
from helpers.reference_compressors import RULES

PUSH, ASK, ANSWER = 3, 3, 4


class Node:
    """One rank of a replay; each method applies the update that the paper defines for an event."""

    def __init__(self, rank, ranks):
        self.rank, self.ranks, self.x, self.rule = rank, ranks, START, Momentum()
        self.g = None

    def gradient(self, step):
        self.g = gradient(self.x, rows(self.rank, step))

    def step(self):
        self.x = self.rule.step(self.x, self.g)


class Gossiper(Node):
    """GoSGD (Blot et al. 2016): a push sends the parameters and half of the sender's weight."""

    a = 1.0

    def send(self, to, tag):
        self.a /= 2
        return self.x, self.a

    def receive(self, letter, tag):
        x, a = letter
        self.x, self.a = (self.a * self.x + a * x) / (self.a + a), self.a + a


class Pairer(Node):
    """AD-PSGD (Lian et al. 2018): a passive node averages when it answers, an active node when the answer arrives."""

    sent = asked = None

    def send(self, to, tag):
        self.sent = self.x if tag == ASK else self.sent
        return self.x

    def receive(self, theirs, tag):
        if tag == ASK:
            self.asked = theirs
        else:
            self.x = self.x + (theirs - self.sent) / 2

    def answered(self):
        self.x = (self.x + self.asked) / 2


class RoundingPairer(Pairer):
    """AD-PSGD with rounding: both nodes average with the rounded parameters that are sent."""

    rounded = staticmethod(lambda x: x)

    @classmethod
    def of(cls, kind):
        return type(kind, (cls,), {"rounded": staticmethod(RULES[kind])})

    def send(self, to, tag):
        self.sent = self.rounded(self.x)
        return self.sent

    def answered(self):
        self.x = self.x + (self.asked - self.sent) / 2


def replay(node, events):
    """Replay the events of all ranks; each message is received only after it was sent."""
    nodes = [node(rank, len(events)) for rank in range(len(events))]
    left, letters = [list(mine) for mine in events], {}
    while any(left):
        before = sum(map(len, left))
        for me, mine in zip(nodes, left, strict=True):
            while mine and proceed(me, mine[0], letters):
                mine.pop(0)
        assert sum(map(len, left)) < before, "a message was received that nobody had sent"
    assert not any(letters.values()), "a message was lost"
    return nodes


def proceed(me, event, letters):
    """Replay one event; return False if it receives a message that was not sent yet."""
    match event:
        case ["gradient", step]:
            me.gradient(step)
        case ["step"]:
            me.step()
        case ["send", to, tag] if tag >= PUSH:
            letters.setdefault((me.rank, to), []).append((me.send(to, tag), tag))
            if tag == ANSWER and isinstance(me, Pairer):
                me.answered()
        case ["receive", source, tag] if tag >= PUSH:
            if not letters.get((source, me.rank)):
                return False
            letter, kind = letters[source, me.rank].pop(0)
            assert kind == tag
            me.receive(letter, tag)
    return True
