"""Description of a converted data set: counts and a contact sheet."""
