// Package authcache is the part of users and roles on servers of data: it follows them from the
// core, and decides for each request what the client may do with the data of keyspaces
// (rpc/access).
//
// # Following
//
// Whether a server must follow users and roles is its Flag, the mark, which it keeps on disk and
// learns from the leader of the core (Learn). While it need not, it is free: all clients may do
// everything, whether the core is reachable or not, and May is one atomic load. A server that is
// told to follow first gets the tables, then writes the mark, and then puts both into effect; so no
// client is refused just because the server has begun to follow.
//
// A server that follows has a stream from a member of the core, on which it asks once a second. The
// answer to a question includes everything that was acknowledged before the question was sent. So
// the server knows, by its own monotonic clock alone, a time up to which its tables are complete,
// and uses them for Config.Grace after that time. Later the answer to clients is access.Unknown
// until it hears again.
//
// INVARIANT: permissions are decided by tables that include every change that was acknowledged more
// than Config.Grace ago. Proof: May reads until, then the tables, then the clock. until is written
// after the tables to which it belongs, so the tables are those, or newer. They include all that
// was acknowledged before the question of until, and the clock is past that by no more than Grace.
//
// INVARIANT: a server is not free if authentication may have been enabled according to its tables.
// It is free only if its mark is off, and authentication is not enabled before all marks are on
// (placement/server/authflag).
//
// # Clients
//
// A Client is a connection with its credentials. Its user and the user's rights are stored with it
// until the tables change. A token is valid for Config.TokenTTL after it was issued, however often
// it is used: a server of data sees only a part of the uses. The client sends a new token before
// that.
//
// A token whose issue is newer than the server's tables is not refused, but answered with
// access.Unknown, and the core is asked at once, unless it was urged just before. The token is
// refused once the tables include everything that was acknowledged before the token came: then no
// member has issued it.
package authcache
