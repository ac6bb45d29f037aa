// Package records reads and writes the two text formats of `tidemark load` and `tidemark dump`.
// Both hold any bytes in keys and values, one record a line, and what a Writer wrote a Reader gives
// back byte for byte.
//
// TSV is `key<TAB>value`, or `key<TAB>value<TAB>expiry` of a record that says when it expires: a
// time as in RFC 3339, or "never". In key and value a tab is written \t, a newline \n, a carriage
// return \r, a backslash \\, and any byte \xNN. A Writer escapes those, the other control
// characters, and bytes that are not UTF-8; a Reader takes every other byte as it is. A line that
// ends with a bare carriage return is refused: it comes from a file with Windows line ends far more
// often than from a value that ends so, and such a value can be written with \r.
//
// JSONL is one JSON object a line: {"key": ..., "value": ...}. A field that is not valid UTF-8 is
// named key_base64 or value_base64 instead and holds standard base64. A Reader takes either name,
// exactly one of each pair. "expires" holds the expiry, as in TSV.
//
// Every error of a Reader is a *LineError, so that a person can find the line.
package records
