// Package reference starts a real etcd for tests and comparisons: the server that defines the
// behaviour of the etcd v3 API.
//
//	func TestMine(t *testing.T) {
//		etcd := reference.Test(t, reference.Options{})
//		client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints()})
//		...
//	}
//
// A separate module, module/go.mod, pins the versions of the programs (etcd, etcdctl, etcdutl), so
// that the database's module does not depend on them. The programs are built once, into a directory
// below the user's cache directory. `make reference` builds them in advance. If a build fails, the
// test fails and is not skipped.
//
// A Cluster has one or more members. Each member is a process with its own data directory, on
// loopback ports. Start returns when all members answer linearizable reads. Members can be killed,
// paused and started again. Close ends all members.
//
// The only package of Tidemark that this package imports is bench/proof/process. It imports no
// client of etcd.
package reference
