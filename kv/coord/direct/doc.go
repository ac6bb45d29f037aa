// Package direct lets etcd's client for Go call Tidemark's coordination service without the cost of
// gRPC. Calls for keys and leases with one request and one answer go over shared connections to the
// leading server, on which the calls of all goroutines share messages. Watches and all other calls
// go by gRPC as before, and so does each call without such a connection: etcd itself, or an older
// Tidemark, is called by gRPC only.
//
//	calls := direct.New(direct.Config{TLS: tls})
//	defer calls.Close()
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: tls,
//		DialOptions: calls.DialOptions()})
//	if err != nil { ... }
//	defer client.Close()
//	calls.Begin(client.Endpoints)
//
// coord.Connect does this automatically.
//
// Renewals of leases bypass gRPC too, if the server supports it: a stream of renewals
// (clientv3.Client.KeepAlive) is opened as before, and its renewals are sent in calls for many
// leases each. The answers come in the order of the renewals. The stream stays with its server,
// even after a change of the leader. It fails when that server no longer serves, or when Calls is
// closed. The etcd client then opens another stream automatically. A stream that was opened by gRPC
// uses gRPC for its whole life.
//
// Only gRPC carries the metadata and the options of a call or a stream, such as its user. So calls
// with metadata or options go by gRPC, except for the metadata that requires a leader.
//
// Both ways have the same semantics: the same errors, user and deadline, and a call without an
// answer may have been executed. The one difference: a server does not learn that a caller has
// given up. A call without an answer continues there until its deadline, or until the server's own
// time limit.
package direct
