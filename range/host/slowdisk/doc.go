// Package slowdisk tells a disk that is slow from one that is as fast as others: whether the log of
// a process takes many times longer to sync than those of its peers.
//
// A disk that stands still is found by the one write that does not end. A slow one ends every write,
// and each of them late; a leader on it keeps its office by heartbeats, which need no disk, and all
// that it leads is as slow as the disk is. Whether it is slow cannot be said by a number: what is
// slow for flash memory is fast for a rotating disk. So processes tell each other how long their
// syncs take, and each judges itself.
//
// # Data flow
//
//	raftlog counts syncs and their time ─► Meter: a mean for each second, the median of some of them
//	the meter's figure ─► pings ─► the same figures of the peers
//	both ─► Judge, once a second: slow or not
//
// # Steadiness
//
// A compaction, or a neighbour on the same machine, makes any disk slow for a moment; and leaderships
// that went to and fro with it would cost more than it does. So the figure is a median, the judgement
// changes only if it was the same several times in a row, and a disk counts as well again after a
// time that doubles with each relapse.
//
// The package reads no clock, and starts no goroutine. Its types are not safe for concurrent use.
package slowdisk
