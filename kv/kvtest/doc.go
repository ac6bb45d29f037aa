// Package kvtest gives any Go test a whole Tidemark cluster inside the test's own process.
//
//	func TestMine(t *testing.T) {
//		cluster := kvtest.Start(t, kvtest.Options{})
//		users, err := cluster.Client(t).CreateKeyspace(t.Context(), "users", kv.Hash(4))
//		...
//	}
//
// The servers are real ones (deploy/embedded): consistent core, data nodes, Raft, Pebble, gRPC.
// What is not real is the world around them: the network (rpc/memnet), the disks (Pebble's
// crashable filesystem in memory) and the clocks belong to the test. So a test needs no ports and
// no files, and can do to the cluster what happens to clusters: Kill (lose power, and with it what
// was not synced), Stop, Restart, Wipe; cut, slow or break links; fill or break a disk; set a clock
// off.
//
// Start returns when all servers are ready, and everything is closed when the test ends. It works
// in real time and, with nothing else to be said, inside a testing/synctest bubble, where a minute
// of the cluster's life takes a fraction of a second: give it a network latency then
// (Options.Latency), for time passes in a bubble only while all goroutines wait.
//
// # Ownership
//
// A Cluster's methods may be called from any goroutine, but starting, stopping, killing and wiping
// the same server is for one at a time. A server's disk and clock outlive its process; its metrics
// and its memory do not.
//
// INVARIANT: a killed server's former process has no effect on anything that is left: it is cut off
// from the network before its disk is copied as the crash leaves it, and is closed over the disk
// that no server will see again.
package kvtest
