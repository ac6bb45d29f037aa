// Package console is the web interface of a cluster. Each server has it at its HTTP address: pages
// under /console/, and their data under /console/api/.
//
//	/console/             the pages: built from app, embedded from dist (files)
//	/console/api/session  who asks, and what the caller may do
//	/console/api/live     what the pages show, as server-sent events (live)
//	/console/api/...      single questions, and changes if they are allowed (actions)
//
// A page asks for feeds by name: "cluster", "partitions?keyspace=fruit". A feed has one goroutine.
// It asks the cluster and passes the answer to all streams that follow the feed, so ten pages cost
// as much as one page. The goroutine begins with the first stream and ends with the last one (hub).
// An expensive feed is refreshed less often, so that each feed works for only a small part of the
// time.
//
// The console reads the cluster as any client does, through packages kv and kv/admin. So it shows
// the whole cluster at any server. A viewer is the user as which the console asks. Without users
// there is one viewer, for callers that may see debug pages. With authentication enabled, each
// session of a user who has logged in has its own viewer (sessions), and the cluster checks the
// user's rights.
//
// Locks: while hub.mu, viewer.mu, sessions.mu or feed.mu is held, no other lock is taken, except
// that feed.mu may be taken while hub.mu is held.
//
// INVARIANT: the constants of limits.go limit streams, feeds, sessions and bodies of requests,
// whatever callers send. Nothing runs while no page is open.
package console
