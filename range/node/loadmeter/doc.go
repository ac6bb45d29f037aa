// Package loadmeter measures what a replica of a data node costs: a Meter the time spent on its
// requests and entries, and a Sampling which keys its requests touch, so that a key is found at
// which the load can be divided. Both are for the way of requests: they are counters without locks.
package loadmeter
