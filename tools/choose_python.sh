#!/bin/sh
# Print the Python to create .venv with: the first of `python3`, that of the system and newer ones that is at least 3.11,
# can create environments and was built with profile-guided optimisation; `python3` if there is none.
check=src/rune/bootstrap/interpreter.py
for each in python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
  "$each" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
  "$each" "$check" >/dev/null 2>&1 || continue
  echo "$each"
  exit
done
echo python3
