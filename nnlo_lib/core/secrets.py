"""Secrets in settings: `${VARIABLE}` is replaced at use, and passwords and tokens are masked in all that is shown.

Imports nothing but the standard library, because errors and log messages are masked here.
"""

import hashlib
import os
import re
from typing import Any

MASK = "***"
VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_VALUE = r"([^\s&;#|<>\"'\\]+)"
# Each pattern has two groups: what stays, and the secret. A secret ends before a quote, because settings are also JSON.
# The first two never name a file: with another password, a URL has the same data. A `token` can be all that names a file.
_SECRETS = tuple(
    re.compile(before + secret)
    for before, secret in (
        (r"(://[^\s/?#\"'\\:@]*:)", r"([^\s/?#\"'\\]+(?=@))"),  # user:password@host
        (r"(?i)([?&](?:[\w.-]*(?:signature|secret|passw(?:or)?d|credential|(?:access|security)[_-]token)|sig)=)", _VALUE),
        (r"(?i)([?&](?:[\w.-]*(?:token|api[_-]?key)|key|auth)=)", _VALUE),
        (r"(https?://(?:hooks\.[^\s/\"'\\]+|[^\s\"'\\]*?hook\w*)/)", _VALUE),  # Slack, Discord, Teams, Mattermost
        (r"(https?://api\.telegram\.org/bot)", r"([^\s/\"'\\]+)"),
        (r"(\bBearer\s+)", r"([\w.~+/=${}-]{6,})"),
        (r"(?i)(\bAuthorization:\s*(?:\w+\s+)?)", _VALUE),
        (r"(?i)(\b(?:x|private|job|deploy)-[\w-]*(?:token|key):\s*)", _VALUE),
        (r"(\s(?:-u|--user)[ =][\"'\\]*[^\s:\"'\\]+:)", _VALUE),  # curl
        (r"(--(?:http-|ftp-|proxy-)?passw(?:or)?d[ =][\"'\\]*)", _VALUE),  # wget
        (r"(\b[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_KEY)=[\"'\\]*)", _VALUE),
        (
            r"(\b(?:gh[opsur]_|github_pat_|glpat-|xox[a-z]-|sk-(?=[\w-]{20})|A[KS]IA(?=[A-Z0-9]{12})"
            r"|hf_(?=[a-z0-9]*[A-Z])))",
            r"([\w-]{6,})",
        ),
    )
)  # fmt: skip


def mask(text: str) -> str:
    """Return a text with *** in place of each password and token of a known form; variables stay."""
    for pattern in _SECRETS:
        text = pattern.sub(_masked, text)
    return text


def _masked(found: re.Match[str]) -> str:
    is_variable = VARIABLE.search(found[2]) or re.fullmatch(r"\$\w+", found[2])
    return found[0] if is_variable else found[1] + MASK


def without_credentials(url: str) -> str:
    """Return a URL with *** in place of passwords and signatures, also of variables there: the same for the same file."""
    for pattern in _SECRETS[:2]:
        url = pattern.sub(lambda found: found[1] + MASK, url)
    return url


def mask_settings(value: Any) -> Any:
    """Return a JSON value in which the texts are masked."""
    if isinstance(value, dict):
        return {key: mask_settings(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [mask_settings(each) for each in value]
    return mask(value) if isinstance(value, str) else value


def substitute(text: str) -> str:
    """Return a text with the values of the variables that are set."""
    return VARIABLE.sub(lambda found: os.environ.get(found[1], found[0]), text)


def resolve(text: str, key: str) -> str:
    """Return a setting for its use. Raises UserError if a variable is not set, or a secret was masked."""
    from nnlo_lib.core.errors import UserError

    if MASK in text:
        raise UserError(
            f"{key}: has {MASK} in place of a secret, which is not stored; write ${{VARIABLE}} there and export it"
        )
    if missing := next((name for name in VARIABLE.findall(text) if name not in os.environ), None):
        raise UserError(f"{key}: the environment variable {missing} is not set; `export {missing}=...`")
    return substitute(text)


def unresolve(text: str, setting: str) -> str:
    """Return a message on a resolved setting with the names of its variables in place of their values."""
    for name in VARIABLE.findall(setting):
        if value := os.environ.get(name):
            text = text.replace(value, f"${{{name}}}")
    return mask(text)


def conceal(text: str) -> str:
    """Return an argument of a process, which other users see, masked; the process finds the text in its environment."""
    shown = mask(text)
    if shown != text:
        os.environ[_variable_of(shown)] = text
    return shown


def reveal(shown: str) -> str:
    """Return the text of an argument that the starting process concealed."""
    return os.environ.get(_variable_of(shown), shown)


def _variable_of(shown: str) -> str:
    return f"NNLO_CONCEALED_{hashlib.sha256(shown.encode()).hexdigest()[:12].upper()}"
