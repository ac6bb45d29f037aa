// Package clients runs unmodified clients of etcd against a cluster of four server processes of
// Tidemark: three members of the core and a data node. During the run of each client the test kills
// the server that leads. Each client is tested three times: with the addresses of the members only,
// of the data node only, and of all servers. etcd's client for Go is also tested while one server
// after the other stops and starts again. Run `make clients`, or
//
//	go test ./bench/proof/clients -clients -v [-run TestNode]
//
// The clients are etcdctl (built from the Go module proxy by package reference), etcd3 for Node
// (installed by npm ci, as node/package-lock.json pins it) and python3-etcd3 (a package of the
// distribution, installed by apt-get). Missing clients are installed. If that fails, the test fails
// and is not skipped. Without -clients the tests are skipped: they need the network, and apt-get
// needs the rights of root.
//
// A client prints KILL when it has done its part with all servers. Then it reads a line, and does
// the rest while one server is down. It exits with 0 if all results were right.
package clients
