// Package health finds the problems of a cluster in the data of package admin (Judge): partitions
// that cannot be used; nodes that are down, full or unhealthy; members of the core that are
// missing; and servers that do not hear each other. Each problem is a sentence for people.
//
// The functions have no state, and ask nothing: `tidemark status` and the console read the lists.
package health
