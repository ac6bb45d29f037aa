// Package coord has recipes for programs that have to agree: locks, elections, barriers, queues,
// timers, and the instances of services. It stands on the etcd v3 API, as the coordination service
// of Tidemark's consistent core serves it, or etcd itself.
//
//	client, err := coord.Connect(ctx, []string{"127.0.0.1:7400"})
//	if err != nil { ... }
//	defer client.Close()
//
//	session, err := client.NewSession(ctx)
//	defer session.Close(ctx)
//
//	lock, err := client.Mutex("reports").Lock(ctx, session)
//	err = write(lock.Held(), lock.Token())
//	err = lock.Unlock(ctx)
//
// # Sessions
//
// All that is held is held under a Session: a lease that is kept alive. It ends when it is closed,
// when the service says that the lease is gone, or when no renewal was confirmed within the time to
// live. Session.Err says which. What was held is gone then, and its contexts (Lock.Held and the
// like) end. A program makes another session, and takes what it needs again.
//
// # What a lock guarantees, and what it does not
//
// As long as clocks go at nearly the same speed, of two holders' contexts (Lock.Held) the first
// ends before the second one's Lock returns: a session counts its time to live from when a renewal
// was sent, and the service from when it came, which is later. It does not matter what the clocks
// show.
//
// That is not enough to protect data. A holder may stand still right after it has looked at its
// context: its process is paused, its machine swaps, its packets wait in a queue. It goes on
// minutes later, and writes what it meant to write, although another one holds the lock by now. No
// lock can help there that is held by a client. So the data itself must refuse the former holder:
// each holder has a Token, which is higher than those of all holders before, it is sent with every
// write, and what keeps the data refuses one that is lower than it has seen. For keyspaces of
// Tidemark that is Fence: a transaction that checks it does not commit after a later holder's.
// Where nothing checks tokens, a lock saves work that would be done twice, and is not one that may
// decide on data.
//
// Tokens are revisions of the service. They go on rising when its servers change or restart, and
// after the service was restored from a snapshot, if its revisions were raised then: `tidemark coord
// import` does so, and `etcdutl snapshot restore` with --bump-revision and --mark-compacted. They
// say nothing across services.
//
// # Errors, and outcomes that are not known
//
// Calls repeat what failed for a moment until their context ends. A request that got no answer may
// have been executed, or may be executed later; the recipes find out which, and make sure that what
// was given up does not come late: a lock that was asked for and given up is in no other's way for
// longer than it takes to remove it, which goes on in the background, or else until its session
// ends. Where it cannot be found out, an error says so: ErrOutcomeUnknown.
//
// Errors are *Error: a sentence that says what happened, and what to do. errors.Is tells the kind.
//
// # Without sessions
//
// Own makes a program the owner of a key of a keyspace, for a time to live, by compare-and-set: it
// needs the keyspace only.
//
// # Keys
//
// All keys are below the client's prefix (Prefix), and then by recipe and name: "lock/NAME/",
// "rwlock/NAME/read/", "rwlock/NAME/write/", "election/NAME/", "barrier/NAME/",
// "double-barrier/NAME/", "sequence/NAME/", "queue/NAME/", "service/NAME/", "timer/NAME/", with
// names escaped as in the path of a URL, and "session/LEASE". A lock's keys, in the order in which
// they were created, are those of its holders and of the sessions that wait. Programs that share a
// lock have to use this package.
//
// # Bounds
//
// A session holds up to 100,000 keys. A watch that is not read (Observe, Watch) keeps in memory
// what has happened. All sessions of a client share one stream for their renewals, which ends with
// the last of them. Every goroutine belongs to a session, to that stream, to a call or to the
// client, and ends with it.
package coord
