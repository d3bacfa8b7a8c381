"""Location of a store: data/<dataset>/<format>-<key>, with a key of its settings, code and original files."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.core.atomic_file import atomic_write, load_json
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.data.fetch.record import is_remote
from nnlo_lib.data.source_identity import SourceChecksums, source_identity
from nnlo_lib.data.store.manifest import MANIFEST_FILE
from nnlo_lib.data.store_settings import StoreSettings, short_hash

DATA_FOLDER = Path("data")
CHECKSUMS_FILE = "checksums.json"  # of original files, in data/<dataset>
LOCATIONS_FILE = "stores.json"  # fields of each location by hash of the settings, in data/<dataset>
FIELDS = ("key", "raw", "identity")  # of each record in this file
RAW_FOLDER = "raw"

logger = get_logger(__name__)


@dataclass(frozen=True)
class StoreLocation:
    """Folders of one store and of its fetched files.

    Attributes:
        raw: folder of the fetched files.
        identity: identity of the original files; empty if the store is not named by its contents.
    """

    settings: StoreSettings
    folder: Path
    raw: Path
    identity: str = ""

    @property
    def manifest(self) -> Path:
        """Path of the manifest."""
        return self.folder / MANIFEST_FILE

    @property
    def key(self) -> str:
        """Key in the name of the folder; empty if the caller named the folder."""
        return self.folder.name.rpartition("-")[2] if self.identity else ""

    @classmethod
    def at(cls, settings: StoreSettings, folder: Path) -> "StoreLocation":
        """Return a location that the caller names; the fetched files are in the sibling folder `raw`."""
        return cls(settings, folder, folder.parent / RAW_FOLDER)


def locate_store(settings: StoreSettings, leads: bool = True) -> StoreLocation:
    """Return the location of the store of the data that the settings name at present.

    Args:
        leads: read the original files. False, for a job of a search or workflow, uses the location that the
            leading process has recorded, so that all jobs use the same store.

    Raises UserError if the original files do not exist, and no store of them exists either.
    """
    home = DATA_FOLDER / settings.dataset
    locations = _read_locations(home)
    former = locations.get(settings.former_hash)
    recorded = locations.get(settings.hash, former)
    if recorded and not leads:
        return _location(settings, **recorded)
    is_of_password = recorded is former and settings.hash != settings.former_hash
    source = settings.source or ""
    is_gone = not (settings.spec.has_fixed_source or is_remote(source) or Path(source).exists())
    if recorded and (is_gone or is_of_password):
        kept = _location(settings, **recorded | {"key": settings.key(recorded["identity"])})
        if kept.manifest.exists():
            if not is_of_password:
                logger.warning(
                    f"data.source: {settings.source} not found; using the store that was converted from it"
                )
            return kept
    # The files and the user's code as they are now.
    identity = source_identity(settings, SourceChecksums(home / CHECKSUMS_FILE))
    found = {"key": settings.key(identity), "raw": _raw_folder(settings, identity), "identity": identity}
    # The location of a catalog data set depends on no file, so that every process finds it again.
    if found != recorded and not settings.spec.has_fixed_source:
        # Without the record, for example in a folder that is only readable, each job finds the location again.
        with suppress(UserError), atomic_write(home / LOCATIONS_FILE) as part:
            part.write_text(json.dumps(_read_locations(home) | {settings.hash: found}, indent=1) + "\n")
    return _location(settings, **found)


def _location(settings: StoreSettings, key: str, raw: str, identity: str) -> StoreLocation:
    home = DATA_FOLDER / settings.dataset
    return StoreLocation(settings, home / f"{settings.format}-{key}", home / raw, identity)


def _read_locations(home: Path) -> dict[str, dict[str, str]]:
    try:
        found = load_json((home / LOCATIONS_FILE).read_text())
        return {hash: {name: str(fields[name]) for name in FIELDS} for hash, fields in found.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(f"{home / LOCATIONS_FILE}: damaged ({error}); remove the file") from error


def _raw_folder(settings: StoreSettings, identity: str) -> str:
    """Return the name of the folder of the fetched files: one for each source of a user's data set."""
    if settings.spec.has_fixed_source:
        return RAW_FOLDER
    path = Path(settings.source or "")
    is_folder = not is_remote(settings.source or "") and path.is_dir()
    return f"{RAW_FOLDER}-{short_hash(str(path.resolve())) if is_folder else identity}"
