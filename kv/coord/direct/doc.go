// Package direct has etcd's client for Go call Tidemark's coordination service without gRPC where
// that only costs: calls about keys and leases that are one request and one answer go over one
// connection to the server that leads, on which the calls of all goroutines share messages. Watches
// and everything else go by gRPC as before, and so does each call for which there is no such
// connection: a service that is etcd itself, or an older Tidemark, is served by gRPC alone.
//
//	calls := direct.New(direct.Config{TLS: tls})
//	defer calls.Close()
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: tls,
//		DialOptions: calls.DialOptions()})
//	if err != nil { ... }
//	defer client.Close()
//	calls.Begin(client.Endpoints)
//
// coord.Connect does this by itself.
//
// Leases are renewed past gRPC too, if the server knows how: a stream of renewals
// (clientv3.Client.KeepAlive) is opened as before, and what is sent on it goes in calls for many
// leases each. Its answers come in the order of the renewals. It stays with the server for which it
// was opened, also when another one comes to lead, and fails when that server serves no more, or
// when Calls are closed; etcd's client then opens another one by itself. A stream that was opened
// by gRPC stays there for as long as it lives.
//
// What a caller says in the metadata or the options of a call or a stream, such as its user, only
// gRPC carries: such calls go by gRPC, unless it is that there has to be a leader.
//
// A call means the same either way: its errors, its user and its deadline are those of gRPC, and
// one that got no answer may have been made. Only, a server does not hear that a caller has given
// up: a call that is not answered yet goes on there until its deadline, or for as long as the
// server gives it.
package direct
