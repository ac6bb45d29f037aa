// Package authcache is a server's side of users and roles: it follows them from the core, and says
// for each request what the client may do with the data of keyspaces (rpc/access).
//
// # Following
//
// Whether a server has to follow users and roles is its Mark, which it keeps on disk and learns
// from the leader of the core (Learn). While it does not have to, it is free: all clients may do
// everything, whether the core can be reached or not, and May is one atomic load. A server that is
// told to follow gets the tables first, then writes the mark down, and then goes by it; so no
// client is refused only because it begins.
//
// A server that follows has a stream from a member of the core, on which it asks once a second.
// The answer to an ask has everything that was acknowledged before the ask was sent. So the server
// knows, by its own monotonic clock and no other, a moment up to which its tables are complete, and
// goes by them for Config.Grace after that moment. Beyond it the answer is access.Unknown until it
// hears again.
//
// INVARIANT: what a client may do is judged by tables that have every change that was acknowledged
// more than Config.Grace ago. Proof: May reads until, then the tables, then the clock. until is
// written after the tables that it is for, so the tables are those, or newer. They have all that
// was acknowledged before the ask of until, and the clock has not passed that by more than Grace.
//
// INVARIANT: a server with tables of which authentication may have been enabled does not go by them
// as a free one. It is free only if its mark is off, and authentication is not enabled before all
// marks are on (placement/server/authflag).
//
// # Clients
//
// A Client is a connection with what it has shown. What follows from that, the user and the user's
// rights, is kept with it until the tables change. A token counts for Config.TokenTTL after it was
// issued, whatever it was used for: a server that holds data sees only its own part of the uses.
// The client shows a new one before that.
//
// A token that was issued by what the server has not heard of yet is not refused, but answered with
// access.Unknown, and the core is asked at once, if it was not just urged. It is refused once the
// tables have what was acknowledged before it came: an index that no member has issued is then a
// lie.
package authcache
