-- definition: the canonical form of definition $1. Changes nothing.
SELECT canonical FROM definition WHERE hash = $1
