// Package gateway serves the etcd v3 API as JSON over HTTP/1.1, as etcd's own gateway renders it:
// POST /v3/kv/range and the like, with bytes in base64, 64-bit integers as strings, enumerations by
// name, and the fields' own names. The paths are those that the services' descriptions have.
//
// # How a request goes
//
// A Handler finds the service and method of a path, decodes the body into the request, and calls
// the service's method in this process, as the gRPC server would: with the client's address and
// certificate, and with its headers (Authorization, Grpc-Metadata-*) as metadata, within the time
// of Grpc-Timeout. The metadata say that a gateway calls, so that the name of the certificate names
// no user; a token does. The answer, or the status, is rendered. Streams have one JSON value for
// each message in either direction, a line each in the answer: {"result": ...}, or {"error": ...}
// as the last.
//
// # What clients can do
//
// A request is read up to a limit, within a time, and counted before it is decoded, since an empty
// part takes a few bytes here and a hundred in memory. The memory of requests is shared by the
// clients' hosts (Config.Room), and so is that of answers on their way (Config.Outgoing). A client
// that does not read its answer for WriteTimeout loses its connection. Requests of browsers on
// behalf of another site are refused.
//
// # Why not grpc-gateway
//
// The runtime of grpc-gateway, with the handlers of etcd's API module, would replace routes.go and
// the calls in exchange.go, some 200 of 900 lines. Its handlers that call services in the process
// refuse the three streams (Watch, LeaseKeepAlive, Snapshot), and have no elections and locks, so
// the gateway would connect to its own server: each message is encoded twice more, and the server
// has to trust its own connection for a client's address and certificate. The library decodes a
// request before parts could be counted, and does not report when an answer was sent, which is when
// memory is freed.
//
// # Goroutines
//
// A Handler starts none. A service may use its stream from several goroutines; when ServeHTTP
// returns, none of them uses the stream any more.
package gateway
