// Package faults breaks a real cluster and checks that nothing was lost: `make faults`, or
//
//	go test ./bench/proof/faults -faults -v [-run TestKillOne]
//
// Without -faults its tests are skipped: they need the built binary, minutes, and a machine that is
// otherwise idle. The servers are separate processes of bin/tidemark on loopback, and what is done
// to them is what happens to servers: kill -9, SIGSTOP, a full disk, a damaged file, a wrong
// directory. The load goes through the SDK, and what the clients were told is checked by package
// history.
//
// Package fleet starts, ends and asks the servers, as it does for package nemesis; Load is the
// traffic with its history; Probe measures how long a partition does not answer; rawReader speaks
// to one server directly, without the SDK's good sense, to catch it at a stale read. Each test
// prints lines that begin with "RESULT"; make faults shows them.
//
// Every wait is for a condition and ends; processes are killed when a test ends, however it ends.
package faults
