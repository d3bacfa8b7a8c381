"""Translation of commands and files of five older systems; all of it raises UserError for input that is not valid there."""
