// Package kvtarget puts a keyspace of Tidemark under the load generator of package bench, through
// the public SDK and nothing else.
package kvtarget
