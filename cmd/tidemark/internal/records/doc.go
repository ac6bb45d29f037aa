// Package records reads and writes the two text formats of `tidemark load` and `tidemark dump`.
// Both can represent any bytes in keys and values, with one record in a line. A Reader returns the
// records of a Writer byte for byte.
//
// TSV is `key<TAB>value`, or `key<TAB>value<TAB>expiry` for a record with an expiry: a time as in
// RFC 3339, or "never". In key and value a tab is written \t, a newline \n, a carriage return \r, a
// backslash \\, and any byte \xNN. A Writer escapes those, the other control characters, and bytes
// that are not UTF-8. A Reader accepts every other byte unchanged. A line that ends with a bare
// carriage return is refused: it usually comes from a file with Windows line ends, and rarely from
// a value that ends with a carriage return. Such a value can be written with \r.
//
// JSONL is one JSON object in a line: {"key": ..., "value": ...}. A field that is not valid UTF-8
// is named key_base64 or value_base64 instead and has standard base64. A Reader accepts either
// name, exactly one of each pair. "expires" has the expiry, as in TSV.
//
// Every error of a Reader is a *LineError, so that a person can find the line.
package records
