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
    """Folders of one store and of its fetched files; `key`, in the name of the folder, is empty if the caller named it."""

    settings: StoreSettings
    folder: Path
    raw: Path
    key: str = ""

    @property
    def manifest(self) -> Path:
        """Path of the manifest."""
        return self.folder / MANIFEST_FILE


def locate_store(settings: StoreSettings, leads: bool = True) -> StoreLocation:
    """Return the location of the store of the data that the settings name at present.

    Without `leads`, a job of a search or workflow uses the location that the leading process has recorded, so that
    all jobs use the same store.

    Raises UserError if the original files do not exist, and no store of them exists either.
    """
    home = DATA_FOLDER / settings.dataset

    def location(key: str, raw: str) -> StoreLocation:
        return StoreLocation(settings, home / f"{settings.format}-{key}", home / raw, key)

    recorded = _read_locations(home).get(settings.hash)
    if recorded and not leads:
        return location(recorded["key"], recorded["raw"])
    source, is_fixed = settings.source or "", settings.spec.has_fixed_source
    if recorded and not (is_fixed or is_remote(source) or Path(source).exists()):
        # With the user's code as it is now.
        kept = location(settings.key(recorded["identity"]), recorded["raw"])
        if kept.manifest.exists():
            logger.warning(f"data.source: {source} not found; using the store that was converted from it")
            return kept
    # The files and the user's code as they are now.
    identity = source_identity(settings, SourceChecksums(home / CHECKSUMS_FILE))
    # The fetched files have one folder for each source of a user's data set.
    is_folder = source and not is_remote(source) and Path(source).is_dir()
    of_source = short_hash(str(Path(source).resolve())) if is_folder else identity
    raw = RAW_FOLDER if is_fixed else f"{RAW_FOLDER}-{of_source}"
    found = {"key": settings.key(identity), "raw": raw, "identity": identity}
    # The location of a catalog data set depends on no file, so that every process finds it again.
    if found != recorded and not is_fixed:
        # Without the record, for example in a folder that is only readable, each job finds the location again.
        with suppress(UserError), atomic_write(home / LOCATIONS_FILE) as part:
            part.write_text(json.dumps(_read_locations(home) | {settings.hash: found}, indent=1) + "\n")
    return location(found["key"], raw)


def _read_locations(home: Path) -> dict[str, dict[str, str]]:
    try:
        found = load_json((home / LOCATIONS_FILE).read_text())
        return {hash: {name: str(fields[name]) for name in FIELDS} for hash, fields in found.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(f"{home / LOCATIONS_FILE}: damaged ({error}); remove the file") from error
