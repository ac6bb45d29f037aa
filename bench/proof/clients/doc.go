// Package clients runs unmodified clients of etcd against a cluster of four server processes of
// Tidemark, three members of the core and a data node, and kills the one that leads under each of
// them. Each client is given the members alone, the data node alone, and all of them; etcd's client
// for Go is there, too, while each server stops and starts again: `make clients`, or
//
//	go test ./bench/proof/clients -clients -v [-run TestNode]
//
// The clients are etcdctl (built from the Go module proxy by package reference), etcd3 for Node (by
// npm ci, as node/package-lock.json pins it) and python3-etcd3 (of the distribution, by apt-get).
// What is missing is installed; that it cannot be is a failure, not a skip. Without -clients the
// tests are skipped: they need the network, and for apt-get the rights of root.
//
// A client prints KILL when it has done its part with all servers, reads a line, and does the rest
// while one server is gone. It ends with 0 if all was as it should be.
package clients
