// Package forward forwards calls of the etcd API. A server without a part of the coordination store
// forwards the calls of its clients to a member of the core, and returns the answers. So clients of
// etcd may have any server among their endpoints.
//
// # The path of a call
//
// A call is forwarded once: the member that gets the call answers or refuses, and never forwards
// it. The call says that it is forwarded, and who the client is (Config.Outgoing). The member
// checks the user's rights. If this server's own part of the store opens meanwhile, this server
// answers the call itself (Config.Local).
//
// The same member is asked first until it fails, then the others. A member at which calls wait in
// vain for a second also counts as failed: it may be disconnected from the other members, or its
// log may hang. When a member fails, the fate of the request decides the next step:
//
//   - The request was not sent, or the member has refused it before anything was done: the next
//     member is asked. When all members were asked in vain, they are asked again for a while
//     (Config.Patience). After that, the client gets coordpb.ErrNotSent.
//   - The request was sent, there is no answer, and the method changes nothing: the next member is
//     asked.
//   - The request was sent, there is no answer, and the method may change something: the client
//     gets Unavailable, as from a member of etcd that fails.
//
// A call with a deadline is sent to a member only while enough of its time is left to tell the
// client that nothing was sent.
//
// Calls for the member that leads are sent to that member first (ofLeader). The server counts as
// healthy if it finds a healthy member (Healthy).
//
// A stream goes to one member, which must know a leader. It ends with that member's stream. Clients
// of etcd resume such a stream. While the member has answered nothing, the client's messages are
// kept. They are sent to another member if the first one refuses the stream (relay).
//
// # Bounds
//
// Flow control reaches from the client to the member: a message of a stream is read from the member
// when the client's transport has accepted the previous message. So for a client that does not
// read, this server holds one message, two windows of flow control, and the buffers of the client's
// transport. Principals (package rpc/authn, Config.Party) share the number of open calls (maxOpen)
// and the bytes of requests under way (Config.Bytes). Large answers count among the server's large
// answers (Config.Answers). The member also counts a forwarded call for the client
// (rpc.ServerConfig.PassedOn).
//
// Forwarded calls have their own connections, so that the server's own traffic to the core does not
// wait behind them. Each connection has at most Config.PerConnection calls.
//
// # Goroutines
//
// A bidirectional stream has one goroutine that forwards the client's messages. It ends with the
// stream, and Close waits for it.
package forward
