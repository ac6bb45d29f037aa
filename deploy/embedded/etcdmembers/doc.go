// Package etcdmembers shows and changes the members of the core for clients of the etcd API
// (Cluster). A member's id is the id of its data directory. A server has one address, for clients
// and for the other members.
//
// Changes work like those of `tidemark core`: a server that is added is running already and offers
// itself. Unless it is added as a learner, it is a learner only until it has the state, and then
// becomes a voter automatically. A member's address is the address that its server announces.
//
// A Cluster has no state that changes, and needs no lock.
package etcdmembers
