"""The measures of `rune bench`. Each result is compared with a limit measured in the same run."""
