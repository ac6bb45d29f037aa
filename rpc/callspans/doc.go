// Package callspans makes the spans of gRPC calls that a server answers, by the API of
// OpenTelemetry: of the calls of the etcd API, by whatever transport they come. The requests of
// keyspaces have spans of their own (range/node/spans).
//
// # Which calls
//
// A call has a span if
//
//   - its client traces the call: the field traceparent of its metadata has a sampled span (W3C
//     Trace Context), which is the parent;
//   - the call was slow, or ended with an error that says that a server could not do what was asked,
//     at most 100 calls a second. Streams are slow by nature: only errors count;
//   - the call is one of those that are sampled by rate.
//
// A span has the name of the method and the code of the error. It has no keys, values or users.
//
// # Calls that are passed on
//
// The field traceparent in the context of a call names the call's own span, if it has one from its
// begin. So a server that passes the call on, with the fields that it has received, is the parent
// of the server that answers.
package callspans
