// Package loadmeter measures the load of a replica of a data node: a Meter measures the time spent
// on its requests and entries, and a Sampling samples the keys of its requests, to find a key that
// divides the load. Both are counters without locks, since requests pass them. A History keeps what
// the node has done in the last hour.
package loadmeter
