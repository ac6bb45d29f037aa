// Package argument parses arguments and flags: addresses, keys and values, spans, sizes, moments,
// localities, partitionings, and the TLS settings of a client.
package argument
