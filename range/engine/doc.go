// Package engine is Pebble, as two types that cannot be confused.
//
// A Log keeps the Raft logs and hard states of all groups of a process. It has a write-ahead log,
// and a synced commit is durable when it returns; commits that run at the same time share one
// fsync. A State keeps what was applied. It has no write-ahead log: a commit is durable once its
// memtable was flushed, and a crash takes the state back to some earlier consistent prefix of the
// commits, from which the Raft logs are replayed. What survives a crash now is what DurableGet
// sees.
//
//	Log    WAL on, synced   small memtables, so that WAL files are reused early   bytewise keys
//	State  WAL off          64 MiB memtables, bloom filters on key prefixes       cockroachkvs keys
//
// Flushes and compactions pause regularly so that requests get the processor (piece).
//
// # When the disk is full
//
// All writes go through a filesystem that watches them (healthFS). A write that meets "no space
// left on device" waits in healthFS and is tried again until there is room, so that Pebble never
// sees the error and needs no recovery. Full reports true meanwhile, and already when the free
// space falls below Options.MinFreeBytes: code that takes writes from clients asks Full and refuses
// them. Reads go on. Writers of data that can be produced again do not wait: they get ErrNoRoom and
// remove what they have written (NewSpareTableWriter). An owner that closes (Options.Leaving) does
// not wait for room: the engine then ends as if it had been killed.
//
// # When the disk fails
//
// A write or an fsync that fails in any other way cannot be undone or repeated: after a failed
// fsync the contents of the disk are unknown. The engine is then marked failed for good: OnFailure
// is called once, nothing more is written, and all calls return ErrFailed. Whether to end the
// process is the owner's decision.
//
// INVARIANT: no commit returns nil, and no durable read succeeds, if it depends on a write or an
// fsync that failed.
//
// Pebble takes a failed write of its WAL for the end of the process: it panics with locks held, so
// that commits that run at the same time would hang for ever. healthFS therefore hides the failure
// from Pebble: once the engine has failed, writes and syncs of a WAL report success and do nothing.
// That is safe because the failed mark is set before a write reports false success, each commit
// looks at the mark after Pebble says it is done, and the files that would make anything durable
// (tables, the manifest) do report the error. For the same reason writes that would have to wait
// for a flush wait before they enter Pebble (stall). Rejected: letting Pebble see it (hangs),
// blocking the failed call until Close (a goroutine that waits for a commit hangs with it), hiding
// all errors (tables that are not there come back as endless compactions), ending the goroutine.
//
// # When a file is corrupt
//
// Blocks, WAL records and manifests carry checksums, which are Pebble's. A bad one comes out as an
// error from the read, or the open, that met it; IsCorruption knows it. Where Pebble would take
// damage for the end of a file, verify proves that it is not (see there, and walMark). Pebble does
// not notice a WAL file of the Log that is missing or empty; the engine does, by a list of the WAL
// files that hold acknowledged commits (walNames).
//
// # What owns what
//
// Each open engine owns one goroutine for events (FlushEnd, OnFailure), one for the free-space
// check if the filesystem can tell, and Pebble's; all end with Close. Nothing here waits on
// anything but channels and timers, so that it all runs on a vfs.MemFS inside a testing/synctest
// bubble. Nothing is printed: Pebble's messages go to Options.Logger.
package engine
