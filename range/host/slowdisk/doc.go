// Package slowdisk detects a slow disk: it compares how long syncs of the log take in this process
// and in its peers.
//
// A disk that hangs is found by a write that does not end. A slow disk ends every write, but late;
// a leader on it keeps its office by heartbeats, which need no disk, and everything that it leads
// is as slow as the disk. No fixed limit tells whether a disk is slow: what is slow for flash
// memory is fast for a rotating disk. So processes tell each other how long their syncs take, and
// each judges itself.
//
// # Data flow
//
//	raftlog counts syncs and their time ─► Meter: a mean for each second, the median of some of them
//	the meter's figure ─► pings ─► the same figures of the peers
//	both ─► Judge, once a second: slow or not
//
// # Steadiness
//
// A compaction, or a neighbour on the same machine, slows any disk for a moment, and moving
// leaderships back and forth would cost more than that moment. So the figure is a median, the
// judgement changes only after several equal judgements in a row, and a disk counts as well again
// only after a time that doubles with each relapse.
//
// The package reads no clock, and starts no goroutine. Its types are not safe for concurrent use.
package slowdisk
