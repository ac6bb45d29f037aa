// Package faults breaks a real cluster and checks that nothing was lost: `make faults`, or
//
//	go test ./bench/proof/faults -faults -v [-run TestKillOne]
//
// Without -faults its tests are skipped: they need the built binary, minutes, and a machine that is
// otherwise idle. The servers are separate processes of bin/tidemark on loopback. The faults are
// those that happen to real servers: kill -9, SIGSTOP, a full disk, a damaged file, a wrong
// directory. The load goes through the SDK, and package history checks the answers that the clients
// got.
//
// Package fleet starts, stops and queries the servers, as it does for package nemesis. Load is the
// traffic with its history. Probe measures how long a partition does not answer. rawReader calls
// one server directly, without the SDK's checks, to catch a stale read. Each test prints lines that
// begin with "RESULT"; make faults shows them.
//
// Every wait is for a condition and has a deadline. Processes are killed when a test ends, however
// it ends.
package faults
