// Package argument reads what arguments and flags mean: addresses, keys and values, spans, sizes,
// moments, localities, partitionings, and what a client says of TLS.
package argument
