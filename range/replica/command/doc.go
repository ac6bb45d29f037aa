// Package command is what a partition can be asked: a file for each kind of request. There stands
// what the request touches, whether it is valid, and how it is answered. A request finds its command
// through the registry (Of); nothing else switches over the types of requests.
//
// Nothing in here knows a replica. A read is a function of a View: the state at a timestamp. So each
// command can be tried with an engine in memory and nothing else.
//
// # Imports
//
// hlc, rpc's protobuf packages, txn, range/keys, range/engine and range/mvcc.
package command
