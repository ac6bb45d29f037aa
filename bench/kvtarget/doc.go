// Package kvtarget adapts a keyspace of Tidemark to the load generator of package bench, through
// the public SDK only.
package kvtarget
