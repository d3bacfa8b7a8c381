"""The script of Vega, Vega-Lite and Vega-Embed that each page of the report carries; `make vega` writes it again.

vl-convert has 84 MB, of which a page needs this file of 0.3 MB: the package has the file, the extra `dev` has vl-convert.
"""

import gzip

import vl_convert

from nnlo_lib.report.page import TEMPLATES

SCRIPT = TEMPLATES / "vega.js.gz"


def vega_script() -> str:
    """Return the script by vl-convert below a line with versions and licenses."""
    parts = {
        "Vega": vl_convert.get_vega_version(),
        "Vega-Lite": vl_convert.get_vegalite_versions()[-1],
        "Vega-Embed": vl_convert.get_vega_embed_version(),
    }
    versions = ", ".join(f"{name} {version}" for name, version in parts.items())
    made_by = f"bundled by vl-convert {vl_convert.__version__}"
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"/*! {versions}, {made_by}; BSD 3-Clause and others, see vega.LICENSE.txt */\n{script}"


if __name__ == "__main__":
    SCRIPT.write_bytes(gzip.compress(vega_script().encode(), mtime=0))
    print(SCRIPT.relative_to(TEMPLATES.parents[2]))
