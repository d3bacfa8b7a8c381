"""A small GPT (Radford et al. 2019): transformer blocks with causal attention, normalized before each part."""

import torch
from torch import Tensor, nn
from torch.nn import functional

FACTOR = 4  # width of the hidden layer of a block, in widths of the model
INITIAL_DEVIATION = 0.02  # of all matrices, as in GPT-2


class CausalBlock(nn.Module):
    """Attention of each token to itself and the tokens before it, then two dense layers, each added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before_attention, self.before_dense = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(
            nn.Linear(width, FACTOR * width), nn.GELU(), nn.Linear(FACTOR * width, width), nn.Dropout(dropout)
        )

    def forward(self, states: Tensor) -> Tensor:
        """Return states (samples, tokens, width) from states of the same shape."""
        states = states + self._attended(self.before_attention(states))
        added: Tensor = states + self.dense(self.before_dense(states))
        return added

    def _attended(self, states: Tensor) -> Tensor:
        samples, tokens, width = states.shape
        queries, keys, values = (
            self.attention(states).view(samples, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(
            queries, keys, values, dropout_p=dropout, is_causal=True
        )
        joined: Tensor = self.joined(seen.transpose(1, 2).reshape(samples, tokens, width))
        return functional.dropout(joined, self.dropout, self.training)


class CausalTransformer(nn.Module):
    """Scores of the token that follows each token; embedding and last layer share their weights."""

    def __init__(self, tokens: int, words: int, width: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*(CausalBlock(width, heads, dropout) for _ in range(layers)))
        self.last = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=INITIAL_DEVIATION)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, texts: Tensor) -> Tensor:
        """Return (samples, tokens, words) from token numbers (samples, tokens)."""
        places = torch.arange(texts.shape[1], device=texts.device)
        states = self.words(texts.long()) + self.places(places)
        scores: Tensor = functional.linear(self.last(self.blocks(states)), self.words.weight)
        return scores


def gpt(
    shape: tuple[int, ...],
    classes: int,
    width: int = 128,
    layers: int = 4,
    heads: int = 4,
    dropout: float = 0.0,
) -> nn.Module:
    """Build the network for texts of `shape` (tokens,), whose token numbers are below `classes`.

    Args:
        heads: heads of a block; must divide `width`.
    """
    if len(shape) != 1:
        raise ValueError(f"gpt requires texts of token numbers (tokens,), but the samples are {shape}")
    if width % heads:
        raise ValueError(f"gpt: width {width} is no multiple of heads {heads}; change one of them")
    return CausalTransformer(shape[0], classes, width, layers, heads, dropout)
