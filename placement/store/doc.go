// Package store is the consistent core's state machine: revisioned keys, leases and watches,
// replicated by one Raft group. It has the semantics of etcd's store, so that the etcd v3 API can
// be put over it. Placement keeps its own data in it.
//
// # Shape
//
// A Store implements group.StateMachine. Commands come in through Do on the leader, are proposed,
// and are evaluated in Apply, by every member alike: a command's outcome is a function of the state
// and the command, and of nothing else (no clock, no random number, no configuration). Reads never
// go through the log: Read waits until the local state is known to be as new as the call (by the
// leader's lease, or by a read index) and then reads the database.
//
//	Do ──► propose ──► log ──► Apply ──► one batch: data, events, meta, index
//	                              │
//	                              ├──► answers to callers that wait in Do here
//	                              ├──► ring: the newest events, in memory, for all watchers
//	                              └──► lessor: which leases exist (package lease)
//
// Everything lives in the span keys.LocalSpan(Config.Partition) of the state database, so that one
// database can have several stores, each with its own group, revisions and leases. tables.Layout
// defines the tables.
//
// # Rooms
//
// This package commits the changes of commands, holds the values of the newest state, and connects
// the rooms, whose methods a Store embeds. Each room has its state, its lock, and an interface for
// its dependencies:
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
// The rooms share the Database, and the values of the newest state, each an atomic that Apply and
// Install replace: revision, compacted, importing, members, authority and alarms.
//
// # Members
//
// The state says which members the core has, and the configuration of the Raft group is made of it
// (members.go, command/members.go). A state without a record of members has the founding members.
//
// # Revisions
//
// The store's revision counts the commands that changed a key; an empty store has revision 1. Every
// version of a key is kept, under the revision that wrote it, until compaction. Compaction at
// revision c makes revisions below c unreadable; what is visible at c and later stays. The leader
// compacts by itself, so that the latest Config.History revisions are kept, in steps of about
// compaction.StepEvents events. A revision with more events becomes unreadable in the first of
// several steps, and the state records what remains to be removed (MetaRecord.compaction_rest).
//
// # Ranges
//
// A range is answered as etcd answers it, in order, filtered and counted (package tables); pairs
// that are equal in the sort field stay in the order of their keys, on every member. Transactions
// without writes read one state of a member, without the log (ReadTxn). The keys in a range are
// counted without a visit to each (package keycount).
//
// # The newest versions
//
// A write needs the previous version of its key. Apply caches the newest versions of the most
// recently used keys, and which keys exist, so that it seldom reads the database for a write
// (newest.go, package newest). Members may cache different versions: a cached version is always
// equal to the one in the database. While no watch of a member asks for previous values, events are
// made without them; a watch that asks later for events of that time gets them from the database.
//
// # Bounds
//
// The keys that a command may touch, and its answer, are bounded when it is proposed (package
// admission). Apply refuses nothing for its size, so that members of different versions reach the
// same state. Reads without the log may touch any number of keys and answer with up to
// Memory.LargestAnswer. A key may be as large as a command. Commands whose outcome is open are
// bounded in number and bytes (package execute).
//
// # Size
//
// The meta record counts the bytes of all versions and events. The leader refuses a command that
// would bring this size above the quota, before it is proposed (package admission).
//
// # Imports
//
// The state that another store had at one revision can be imported into an empty store
// (apply/import.go). Until the import has ended, keys and leases accept no other command, and no
// reads.
//
// # Leases
//
// Granting and ending a lease are commands. A renewal is not: only the leader counts leases down,
// on its monotonic clock. A renewal moves the deadline in the leader's memory. Before it, the
// leader checks that it has applied all that was acknowledged earlier; after it, that it still
// leads. A new leader knows no deadlines and grants every lease a full term. So does a leader whose
// process was paused for a while, since it could not hear renewals. For long leases the leader
// records the remaining time in the log at intervals, and a new leader continues from there. A
// renewal revokes that record, by the log, before the renewal is acknowledged.
//
// # Watches
//
// Apply only publishes the events of each revision to a watch.Hub. A watch.Stream has any number of
// watches, each of a span of keys. Watches that lag behind the hub's memory get their events from
// the database (watch.go). Watcher is a stream with one watch.
//
// # Users
//
// Users, roles, and whether authentication is enabled are in the state (auth.go, apply/auth.go);
// package authority decides what they permit. A command with an AuthInfo comes from a client. It is
// checked when it is applied, whichever member accepted it, and is refused if the rules have
// changed since that member checked its user. A command without an AuthInfo comes from a server. A
// client's read is checked against the state that it reads (ReadTxnAs). Password hashes and the key
// that signs tokens lie unencrypted in the log and the database.
//
// # Once
//
// A command without a session takes effect at most once, since this package never proposes a
// command twice; but after ErrOutcomeUnknown the caller does not know whether it took effect. A
// command with a session and a sequence can be proposed again: the table of sessions, a part of the
// state, holds the answers. Only a command opens a session, so that an evicted session is refused
// and not taken for a new one.
//
// Execute accepts commands at any member. If the leader of a command is gone, Execute learns the
// command's outcome from the log, without a session (package execute).
//
// # Locks
//
// docs/locks.md has the order of all locks of a server. Keeper.noting is held while the leases are
// examined and the due commands are proposed: Lessor.mu and Executor.mu are taken under it. All
// other locks are leaves, under which no lock is taken and no other package is called: the locks of
// the Database, the Executor and its budget, the Index, the waiting renewals, the Compactor, the
// Lessor, the ledger of package space, and the caches that readers share. The hub has its own
// locks, and Apply never waits for the lock of a watcher. No lock is held over I/O or a call to the
// group, except Keeper.noting over Propose, which does not block. The session table, and the
// database's writing side, need no lock: only Apply and Install touch them, and the group calls
// these one at a time.
//
// The changes of an entry become visible in this order (Store.publish): leases, revision and the
// other values, the applied index, whether this member serves, the size, events, and last the
// outcomes of commands and the waiting reads. So a caller that learns an outcome, or finds that
// this member serves, reads a state with the change.
//
// The package does not import rpc, range/replica or anything above.
package store
