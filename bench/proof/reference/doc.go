// Package reference gives tests and comparisons a real etcd: the server that defines what the etcd
// v3 API does.
//
//	func TestMine(t *testing.T) {
//		etcd := reference.Test(t, reference.Options{})
//		client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints()})
//		...
//	}
//
// The programs (etcd, etcdctl, etcdutl) are built from the versions that a module of its own pins,
// in module/go.mod, so that the database's module does not depend on them. They are built once,
// into a directory below the user's cache directory; `make reference` does it in advance. A build
// that fails is an error: nothing is skipped.
//
// A Cluster has one member or several, each a process with a data directory of its own, on loopback
// ports. Start returns when all members answer linearizable reads. Members can be killed, paused
// and started again; Close ends them all.
//
// The package knows nothing of Tidemark but bench/proof/process, and imports no client of etcd.
package reference
