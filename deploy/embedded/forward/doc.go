// Package forward passes calls of the etcd API on. A server that has no part of the coordination
// store hands the calls of its clients to a member of the core, and the answers back; so clients of
// etcd may have any server among their endpoints.
//
// # How a call goes
//
// A call is passed on once: the member that gets it answers or refuses, and passes nothing on. The
// call says that it is passed on, and who the client is (Config.Outgoing); users are judged at the
// member. A server whose own part of the store opens meanwhile answers by itself (Config.Local).
//
// The same member is asked first until it fails, then the others. A member fails, too, at which
// calls wait in vain for a second: it may be cut off from the other members, or its log may stand
// still. What has become of a request decides what is done when a member fails:
//
//   - The request was not sent, or the member has refused it before anything was done: the next
//     member is asked. When all members were asked in vain, they are asked again for a while
//     (Config.Patience), and then the client hears coordpb.ErrNotSent.
//   - The request was sent, there is no answer, and the method changes nothing: the next member is
//     asked.
//   - The request was sent, there is no answer, and the method may change something: the client
//     hears Unavailable, as from a member of etcd that fails.
//
// A call with a deadline is begun at a member only while enough of its time is left for the client
// to hear that nothing was sent.
//
// Calls for the member that leads begin there (ofLeader). The health of the server is that of a
// member that is well (Healthy).
//
// A stream goes to one member, which is to know of a leader, and ends with it. Clients of etcd
// begin it again where it was. While the member has answered nothing, the client's messages are
// kept, and go to another member if the first one refuses the stream (relay).
//
// # Bounds
//
// Flow control reaches from the client to the member: a message of a stream is read from the member
// when the client's transport has taken over the message before. So a client that does not read has
// this server hold one message, two windows of flow control, and what the client's transport holds.
// Parties (package rpc/quota) share the number of calls that are open (maxOpen) and the bytes of
// requests under way (Config.Bytes); large answers count among those of the server
// (Config.Answers). The member counts a call again, for the client (rpc.ServerConfig.PassedOn).
//
// Calls have connections of their own, so that the server's own traffic to the core does not wait
// behind them; each connection has at most Config.PerConnection calls.
//
// # Goroutines
//
// A stream in both directions has one goroutine that hands the client's messages on. It ends with
// the stream, and Close waits for it.
package forward
