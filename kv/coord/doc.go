// Package coord has recipes for programs that coordinate: locks, elections, barriers, queues,
// timers, and the registration of service instances. It uses the etcd v3 API, of the coordination
// service of Tidemark's consistent core or of etcd itself.
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
// Locks, leaderships and the like are held under a Session: a lease that the client renews. A
// session ends when it is closed, when the service reports that the lease is gone, or when no
// renewal was confirmed within the time to live. Session.Err says which. Then everything held under
// the session is lost, and its contexts (Lock.Held and the like) end. The program makes another
// session, and takes the locks again.
//
// # What a lock guarantees, and what it does not
//
// As long as clocks run at nearly the same speed, the context (Lock.Held) of one holder ends before
// the Lock of the next holder returns: a session counts its time to live from the sending of a
// renewal, and the service from its arrival, which is later. The time that the clocks show does not
// matter.
//
// This is not enough to protect data. A holder may be stopped right after it has looked at its
// context: its process is paused, its machine swaps, its packets wait in a queue. It continues
// minutes later, and makes its write, although another client holds the lock by now. No lock that a
// client holds can prevent that. So the data itself must refuse the former holder: each holder has
// a Token, which is higher than those of all earlier holders. The holder sends it with every write,
// and the store of the data refuses a lower token than it has seen. For keyspaces of Tidemark,
// Fence does this: a transaction that checks the fence does not commit after a later holder's
// transaction. If nothing checks tokens, a lock can avoid duplicate work, and cannot protect data.
//
// Tokens are revisions of the service. They go on rising when its servers change or restart, and
// after the service was restored from a snapshot, if its revisions were raised then: `tidemark
// coord import` does so, and `etcdutl snapshot restore` with --bump-revision and --mark-compacted.
// Tokens of different services cannot be compared.
//
// # Errors, and unknown outcomes
//
// Calls retry after temporary failures until their context ends. A request that got no answer may
// have been executed, or may be executed later. The recipes find out which, and make sure that a
// request that was given up has no late effect: a lock whose Lock was given up blocks others only
// until its key is removed, in the background, or until its session ends. If the outcome cannot be
// found out, the error is of the kind ErrOutcomeUnknown.
//
// Errors are *Error: a sentence that says what happened, and what to do. errors.Is tells the kind.
//
// # Without sessions
//
// Own makes a program the owner of a key of a keyspace, for a time to live, by compare-and-set: it
// needs only the keyspace.
//
// # Keys
//
// All keys are below the client's prefix (Prefix), and then by recipe and name: "lock/NAME/",
// "rwlock/NAME/read/", "rwlock/NAME/write/", "election/NAME/", "barrier/NAME/",
// "double-barrier/NAME/", "sequence/NAME/", "queue/NAME/", "service/NAME/", "timer/NAME/", with
// names escaped as in the path of a URL, and "session/LEASE". A lock's keys, in the order of their
// creation, are those of its holders and of the waiting sessions. Programs that share a lock have
// to use this package.
//
// # Bounds
//
// A session holds up to 100,000 keys. Changes that the reader of a watch (Observe, Watch) has not
// taken are kept in memory. All sessions of a client share one stream for their renewals, which
// ends with the last session. Every goroutine belongs to a session, to that stream, to a call or to
// the client, and ends with it.
package coord
