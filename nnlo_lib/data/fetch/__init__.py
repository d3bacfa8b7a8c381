"""Download, verify and unpack raw data sets."""
