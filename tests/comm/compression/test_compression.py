"""Compression: payloads compared with numpy, contraction, error feedback, and sums over ranks."""

import numpy as np
import pytest
import torch
from helpers.run_on_ranks import on_ranks
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn
from pydantic import TypeAdapter

from nnlo_lib.comm.compression.approximation import PowerSGD, TopK
from nnlo_lib.comm.compression.base import (
    ErrorFeedback,
    build_compressor,
    compressed_allreduce,
    pack,
    packed_size,
    unpack,
)
from nnlo_lib.comm.compression.quantization import QSGD
from nnlo_lib.config.compression import CompressionConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.rng import derive_seed

SEED, STEPS = 7, 3
KINDS = {
    "none": {"name": "none"},
    "fp16": {"name": "fp16"},
    "bf16": {"name": "bf16"},
    "top_k": {"name": "top_k", "fraction": 0.1},
    "random_k": {"name": "random_k", "fraction": 0.1},
    "qsgd-2": {"name": "qsgd", "bits": 2, "bucket": 16},
    "qsgd-5": {"name": "qsgd", "bits": 5, "bucket": 1000},
    "qsgd-8": {"name": "qsgd", "bits": 8, "bucket": 64},
    "sign": {"name": "sign"},
    "powersgd": {"name": "powersgd", "rank": 2},
}

LOSSY = [kind for kind in KINDS if kind != "none"]
EVERY = pytest.mark.parametrize("kind", KINDS)
NUMBERS = st.floats(-1e5, 1e5, width=32)
vectors = st.sampled_from([np.float32, np.float64]).flatmap(
    lambda dtype: hn.arrays(dtype, st.integers(1, 70), elements=NUMBERS)
)
examples = settings(max_examples=25)


def make(kind):
    return build_compressor(TypeAdapter(CompressionConfig).validate_python(KINDS[kind]), SEED)


def vector(rank, step, dtype, values):
    drawn = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(values, generator=drawn, dtype=torch.float64).to(getattr(torch, dtype))


@pytest.fixture(autouse=True)
def one_thread():
    """Compute with one thread, as ranks do, because sums over several threads round differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def through(compressor, v, step=0, rank=0):
    """Return decode(encode(v)) as a numpy array; check type and size of the payload."""
    tensor = torch.from_numpy(v.copy())
    payload = compressor.encode(tensor, step, rank)
    assert payload.dtype == torch.uint8
    assert payload.is_contiguous()
    assert payload.shape == (compressor.size(tensor),)
    assert np.array_equal(tensor.numpy(), v), "encoding leaves the vector as it was"
    decoded = torch.full_like(tensor, np.nan)
    compressor.decode(payload, decoded)
    return decoded.numpy()


def squared(v):
    return float(np.sum(v.astype(np.float64) ** 2))


def generator(step=0, rank=0):
    return torch.Generator().manual_seed(derive_seed(SEED, "compression", rank, step))


def kept(v):
    return max(1, round(0.1 * v.size))


# Each compressor compared with an independent computation.


def bf16(v):
    """Round to nearest even in the upper 16 bits."""
    bits = v.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


CASTS = {
    "none": lambda v: v,
    "fp16": lambda v: np.clip(v, -65504, 65504).astype(np.float32).astype(np.float16),
    "bf16": bf16,
}


@pytest.mark.parametrize("kind", CASTS)
@examples
@given(v=vectors)
def test_casts(kind, v):
    assert np.array_equal(through(make(kind), v), CASTS[kind](v).astype(v.dtype))


def test_none_copies_no_vector():
    tensor = torch.ones(3)
    assert make("none").encode(tensor, 0, 0).data_ptr() == tensor.data_ptr()


@examples
@given(vectors)
def test_top_k(v):
    decoded = through(make("top_k"), v)
    assert np.all((decoded == v) | (decoded == 0))
    largest = np.sort(np.abs(v))[::-1][: kept(v)]
    assert np.array_equal(np.sort(np.abs(decoded))[::-1][: kept(v)], largest)
    assert np.count_nonzero(decoded) <= kept(v)
    assert np.array_equal(through(TopK(1.0), v), v)


@examples
@given(vectors, st.integers(0, 2**40), st.integers(0, 1000))
def test_random_k(v, step, rank):
    expected = np.zeros_like(v)
    places = torch.randperm(v.size, generator=generator(step, rank)).numpy()[: kept(v)]
    expected[places] = v[places]
    assert np.array_equal(through(make("random_k"), v, step, rank), expected)


@pytest.mark.parametrize(("bits", "bucket"), [(2, 16), (3, 1), (4, 7), (5, 1000), (8, 64)])
@examples
@given(v=vectors)
def test_qsgd(bits, bucket, v):
    s, d = 2 ** (bits - 1) - 1, min(bucket, v.size)
    padded = np.pad(v.astype(np.float64), (0, -v.size % d)).reshape(-1, d)
    draws = torch.rand(padded.shape, generator=generator()).numpy()
    norms = np.linalg.norm(padded, axis=1, keepdims=True)
    heights = s * np.abs(padded) / np.where(norms > 0, norms, 1)
    tau = 1 + min(d / s**2, d**0.5 / s)
    levels = np.clip(np.floor(heights + draws), 0, s)
    expected = (norms * np.sign(padded) * levels / s / tau).reshape(-1)[: v.size]
    ties = (np.abs(heights + draws - np.rint(heights + draws)) < 1e-5).reshape(-1)[: v.size]
    decoded = through(QSGD(bits, bucket, SEED), v)
    np.testing.assert_allclose(decoded[~ties], expected[~ties], rtol=1e-5, atol=1e-40)


@examples
@given(vectors)
def test_sign(v):
    scale = np.mean(np.abs(v.astype(np.float64)))
    np.testing.assert_allclose(
        through(make("sign"), v), np.where(v < 0, -scale, scale), rtol=1e-6, atol=1e-44
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("values", [1, 2, 3, 16, 60, 1003])
def test_powersgd(dtype, values):
    rows = int(np.ceil(np.sqrt(values)))
    columns = int(np.ceil(values / rows))
    rank, compressor = min(2, columns), make("powersgd")
    q = torch.randn((columns, rank), generator=generator(), dtype=torch.float64).numpy()
    for step in range(4):
        v = np.random.Generator(np.random.PCG64(step)).normal(size=values).astype(dtype)
        m = np.pad(v.astype(np.float64), (0, rows * columns - values)).reshape(rows, columns)
        p = np.linalg.qr(m @ q)[0]
        q = m.T @ p
        tolerance = 1e-3 if dtype == np.float32 else 1e-9
        np.testing.assert_allclose(
            through(compressor, v, step), (p @ q.T).reshape(-1)[:values], atol=tolerance
        )


# Guarantees of the papers.


@EVERY
@examples
@given(v=vectors)
@example(v=np.zeros(1, np.float32))
@example(v=np.zeros(9, np.float64))
@example(v=np.full(65, 1e-42, np.float32))
def test_no_payload_is_worse_than_none_and_zero_stays_zero(kind, v):
    """|C(v) - v| <= |v| for every draw; QSGD guarantees it for the mean only."""
    compressor = make(kind)
    for step in range(2):
        decoded = through(compressor, v, step)
        assert np.all(np.isfinite(decoded))
        if not kind.startswith("qsgd"):
            assert squared(decoded - v) <= squared(v) * (1 + 1e-5) + 1e-80
    assert not np.any(through(compressor, np.zeros_like(v), 2))


def draws(compressor, v, count=1000):
    return np.stack([through(compressor, v, step) for step in range(count)])


V = np.random.Generator(np.random.PCG64(3)).normal(size=30)


@pytest.mark.parametrize(("bits", "bucket"), [(2, 8), (4, 512)])
def test_qsgd_is_unbiased_up_to_tau_and_contracts(bits, bucket):
    compressor = QSGD(bits, bucket, SEED)
    tau = compressor.tau(torch.from_numpy(V))
    sample = draws(compressor, V) * tau
    scatter = sample.std(axis=0) / np.sqrt(len(sample))
    assert np.all(np.abs(sample.mean(axis=0) - V) <= 5 * scatter + 1e-12)
    variance = np.mean(np.sum((sample - V) ** 2, axis=1))
    assert variance <= (tau - 1) * squared(V)  # lemma 3.1 of the QSGD paper
    error = np.mean(np.sum((sample / tau - V) ** 2, axis=1))
    assert error <= (1 - 1 / tau) * squared(V)


def test_powersgd_contracts_after_its_subspace_was_lost():
    """The second matrix is orthogonal to the subspace Q of the previous step."""
    first, second = np.zeros(16), np.zeros(16)
    first[0], second[15] = 1.0, 1.0
    compressor = PowerSGD(1, SEED)
    np.testing.assert_allclose(through(compressor, first, 0), first, atol=1e-12)
    np.testing.assert_allclose(through(compressor, second, 1), second, atol=1e-12)


def test_powersgd_tracks_a_fixed_matrix_of_its_rank_exactly():
    generator = np.random.Generator(np.random.PCG64(5))
    v = (generator.normal(size=(9, 2)) @ generator.normal(size=(2, 9))).reshape(-1)
    np.testing.assert_allclose(through(PowerSGD(2, SEED), v), v, atol=1e-10)


def test_sizes_in_closed_form():
    v = torch.empty(1003)
    sizes = {kind: make(kind).size(v) for kind in KINDS}
    assert sizes == {
        "none": 4 * 1003, "fp16": 2 * 1003, "bf16": 2 * 1003, "top_k": 100 * 8, "random_k": 16 + 100 * 4,
        "qsgd-2": 63 * 4 + 126 * 2, "qsgd-5": 2 * 4 + 126 * 5, "qsgd-8": 16 * 4 + 126 * 8,
        "sign": 4 + 126, "powersgd": 2 * (32 + 32) * 4,
    }  # fmt: skip


@examples
@given(st.integers(1, 8).flatmap(lambda b: st.tuples(st.just(b), st.lists(st.integers(0, 2**b - 1)))))
def test_bits_are_packed_lowest_first(drawn):
    bits, codes = drawn
    packed = pack(torch.tensor(codes, dtype=torch.uint8), bits)
    expected = sum(code << (bits * place) for place, code in enumerate(codes))
    assert bytes(packed.numpy()) == expected.to_bytes(packed_size(len(codes), bits), "little")
    assert unpack(packed, bits, len(codes)).tolist() == codes


# Error feedback.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@EVERY
def test_what_was_sent_and_the_residual_are_what_came_in(kind, dtype):
    feedback = ErrorFeedback(make(kind), 0)
    received, came_in, decoded = np.zeros(1003), np.zeros(1003), vector(0, 0, dtype, 1003)
    for step in range(60):
        v = vector(0, step, dtype, 1003) * (1 + step % 7)
        feedback.compressor.decode(feedback.encode(v), decoded)
        received, came_in = received + decoded.double().numpy(), came_in + v.double().numpy()
    residual = feedback.residual.double().numpy() if kind in LOSSY else 0
    assert kind in LOSSY or not feedback.residual.numel()
    scale = np.abs(received).max() + np.abs(residual).max()
    np.testing.assert_allclose(
        received + residual, came_in, atol=scale * (1e-4 if dtype == "float32" else 1e-12)
    )


def test_a_payload_of_another_size_is_refused(monkeypatch):
    """Receivers cut messages by size(), and the bytes sent are counted by it."""
    feedback = ErrorFeedback(make(LOSSY[0]), 0)
    monkeypatch.setattr(type(feedback.compressor), "size", lambda self, vector: 3)
    with pytest.raises(UserError, match=r"encode returned \d+ bytes, but size\(\) is 3 for a vector of 100"):
        feedback.encode(torch.ones(100))


@pytest.mark.parametrize("kind", LOSSY)
def test_the_residual_stays_bounded(kind):
    """The residual would grow with a compressor that does not contract, such as QSGD with two bits without tau."""
    feedback, norms = ErrorFeedback(make(kind), 0), []
    for step in range(300):
        feedback.encode(vector(0, step, "float64", 200))
        norms.append(float(feedback.residual.norm()))
    assert max(norms[150:]) < 1.5 * max(norms[:150])


@EVERY
def test_a_resumed_sender_sends_the_same_bytes(kind):
    def payloads(feedback, steps):
        return [bytes(feedback.encode(vector(0, step, "float32", 50)).numpy()) for step in steps]

    straight = payloads(ErrorFeedback(make(kind), 0), range(6))
    first, second = ErrorFeedback(make(kind), 0), ErrorFeedback(make(kind), 0)
    assert payloads(first, range(3)) == straight[:3]
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    assert payloads(second, range(3, 6)) == straight[3:]
    fresh = ErrorFeedback(make(kind), 0)
    fresh.load_state(ErrorFeedback(make(kind), 0).state())
    assert payloads(fresh, range(6)) == straight


# Sums over ranks.


def sums(comm, kind, dtype, values):
    """Return the compressed sum over ranks at each step, and the bytes sent."""
    torch.set_num_threads(1)
    feedback, path = ErrorFeedback(make(kind), comm.rank), []
    before = comm.bytes_sent["gradient"]
    for step in range(STEPS):
        total = vector(comm.rank, step, dtype, values)
        compressed_allreduce(comm, feedback, total, "gradient")
        path.append(total.tolist())
    return {"path": path, "bytes": comm.bytes_sent["gradient"] - before}


@pytest.mark.parametrize("values", [1, 1003])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@EVERY
def test_compressed_allreduce(kind, dtype, values):
    senders, path = [ErrorFeedback(make(kind), rank) for rank in range(4)], []
    decoded = torch.empty(values, dtype=getattr(torch, dtype))
    for step in range(STEPS):
        total = torch.zeros_like(decoded)
        for rank, sender in enumerate(senders):
            mine = vector(rank, step, dtype, values)
            if kind == "none":
                decoded = mine  # the all-reduce, in rank order
            else:
                sender.compressor.decode(sender.encode(mine), decoded)
            total = total + decoded
        path.append(total.tolist())
    for result in on_ranks(sums, "simulated", 4, kind, dtype, values):
        assert result == {"path": path, "bytes": STEPS * 3 * make(kind).size(decoded)}


@pytest.mark.mpi
@EVERY
def test_compressed_allreduce_on_mpi_has_the_bits_and_bytes_of_simulated_ranks(kind):
    real, simulated = (
        on_ranks(sums, transport, 4, kind, "float32", 1003) for transport in ("mpi", "simulated")
    )
    assert real == simulated
