// Package store is the consistent core's state machine: revisioned keys, leases and watches,
// replicated by one Raft group. It has the semantics of etcd's store, so that the etcd v3 API can
// be put over it, and it is where placement keeps its own data.
//
// # Shape
//
// A Store implements group.StateMachine. Commands come in through Do on the leader, are proposed,
// and are evaluated in Apply, by every member alike: a command's outcome is a function of the state
// and the command, and of nothing else (no clock, no random number, no configuration). What is read
// never goes through the log: Read waits until the local state is known to be as new as the moment
// of the call (by the leader's lease, or by a read index) and then reads the database.
//
//	Do ──► propose ──► log ──► Apply ──► one batch: data, events, meta, index
//	                              │
//	                              ├──► answers to callers that wait in Do here
//	                              ├──► ring: the newest events, in memory, for all watchers
//	                              └──► lessor: which leases exist (package lease)
//
// Everything lives in the span keys.LocalSpan(Config.Partition) of the state database, so that one
// database can have several stores, each with its own group, revisions and leases. tables.Layout
// has the tables.
//
// # Rooms
//
// This package commits what commands do, holds what the newest state is, and wires the rooms, whose
// methods a Store has as its own. Each room has its state, its lock, and an interface of what it
// needs:
//
//	command     what is in the log: formats, limits, errors, records of members. No state.
//	tables      Database: its tables, and readers of one state, with which apply evaluates, too.
//	snapshot    the stream of a whole store. No state.
//	apply       Machine: what each command does to the database, and the table of sessions.
//	execute     Executor: who leads, and which commands are under way.
//	reading     Index: how far the log is applied here, and who waits for that. Reads: what is read
//	            without the log.
//	keeper      Keeper: renewals of leases, and their ends, over the Lessor of package lease.
//	admission   Gate: what the leader may propose, by size, quota, alarms and formats.
//	compaction  Compactor: the length of the history.
//
// What they share of a Store is the Database, and the values of the newest state, each
// an atomic that Apply and Install replace: revision, compacted, importing, members, authority and
// alarms.
//
// # Members
//
// The state says which members the core has, and the configuration of the Raft group is made of it
// (members.go, command/members.go). Without a record of members it is that of the founding.
//
// # Revisions
//
// The store's revision counts the commands that changed a key; an empty store has revision 1. Every
// version of a key is kept, under the revision that wrote it, until compaction. Compaction at
// revision c makes revisions below c unreadable; what is visible at c and later stays. The leader
// compacts by itself, so that the latest Config.History revisions are kept, in steps of about
// compaction.StepEvents events. A revision with more is made unreadable by the first of several
// steps, and what is left to be removed is in the state (MetaRecord.compaction_rest).
//
// # Ranges
//
// A range is answered as etcd answers it, in order, filtered and counted (package tables); pairs
// that are equal in what they are ordered by stay in the order of their keys, on every member.
// Transactions that write nothing are read from one state of a member, without the log (ReadTxn).
// How many keys a range has is known without going through all of them (package keycount).
//
// # The newest versions
//
// A write needs the version before its own. Apply remembers those of the keys that were used last,
// and which keys exist, so that it seldom reads the database for that (newest.go, package newest).
// Members may remember different ones: what is remembered is what a read would find. While no watch
// of a member asks for what keys were before, that is not read either; a watch that asks later for
// events of that time gets them from the database.
//
// # Bounds
//
// What one command may touch and answer is bounded when it is proposed (package admission); Apply
// refuses nothing for its size, so that members of different versions come to the same. What is
// read without the log may touch any number of keys and answer with Memory.LargestAnswer. A key may
// be as large as a command. Commands whose outcome is open are bounded in number and bytes (package
// execute).
//
// # Size
//
// The meta record counts the bytes of all versions and events. By that size, and a quota, the
// leader refuses what would cross it, before it is proposed (package admission).
//
// # Imports
//
// The state that another store had at one revision can be brought into an empty store
// (apply/import.go). Until that has ended, nothing else is done to keys and leases, and nothing is
// read.
//
// # Leases
//
// Granting and ending a lease are commands. Renewing one is not: only the leader counts leases
// down, on its monotonic clock, and a renewal moves the deadline in its memory, between two looks
// of the leader: that it has applied all that was acknowledged before, and that it still leads. A
// new leader knows no deadlines and grants every lease a full term. So does a leader whose process
// was paused for a while: the silence was its own. Of long leases the leader notes in the log, now
// and then, how much is left, and a new leader goes on from there. A renewal takes that back, by
// the log, before it is acknowledged.
//
// # Watches
//
// Apply publishes the events of each revision to a watch.Hub, and does no more for watchers. A
// watch.Stream has any number of watches, of which each is of a span of keys; those that lag behind
// what the hub has in memory are given the events of the database (watch.go). Watcher is a stream
// with one watch.
//
// # Users
//
// Users, roles, and whether they count are in the state (auth.go, apply/auth.go); package authority
// says what they permit. A command with an AuthInfo is a client's. It is checked when it is
// applied, whichever member let it in: if it is of a user, by rules that have not changed since. A
// command without one is of the servers themselves. What clients read is checked against the same
// state that is read (ReadTxnAs). Hashes of passwords and the key that signs tokens lie in the log
// and the database as they are.
//
// # Once
//
// A command without a session takes effect at most once, since this package never proposes a
// command twice; but after ErrOutcomeUnknown it is not known whether it took effect. A command with
// a session and a sequence can be proposed again: the table of sessions, a part of the state, holds
// the answers. Sessions are opened by a command and never invented, so that one that was evicted is
// refused and not taken for a new one.
//
// Execute takes commands at any member, and finds out by the log what became of one whose leader is
// gone, without a session (package execute).
//
// # Locks
//
// docs/locks.md has the order of all locks of a server. Keeper.noting is held while leases are
// looked at and what is due is proposed: Lessor.mu and Executor.mu are taken under it. All other
// locks are leaves, under which no lock is taken and nothing is called: that of the Database,
// Executor.mu and that of its budget, Index.mu, that of the renewals that wait, Compactor.mu,
// Lessor.mu, the ledger of package space, and the memories that readers are given. The locks of the
// hub are its own, and Apply never waits for a watcher's. None is held over I/O or a call to the
// group but Keeper.noting, over Propose, which does not block. What only Apply and Install touch
// (the session table, and the database's writing side) needs no lock, because the group calls these
// one at a time.
//
// What an entry has changed becomes visible in this order (Store.publish): leases, revision and the
// other values, the applied index, who serves, the size, events, and last the outcomes of commands
// and the reads that waited. So a caller that hears of an outcome, or finds that this member
// serves, reads a state that has the change.
//
// The package does not import rpc, range/replica or anything above.
package store
