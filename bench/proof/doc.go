// Package proof is the folder of everything that proves what Tidemark promises. It holds no code.
//
//	workloads   traffic together with the check of what came of it; serves sim and nemesis alike
//	driver      runs workloads, reports how their operations end, and judges it
//	calm        which failures faults excuse, and which are violations
//	history     records and checks the history of single keys
//	isolation   records and checks the history of transactions, by their dependency cycles
//	sim         a simulated cluster in virtual time under a schedule of faults, from a seed
//	faults      tests that kill, pause, fill and damage real processes
//	nemesis     a program that breaks real processes by a random schedule
//	fakeserver  servers without Raft and disks, for tests of what talks to servers
//	process     starts, watches and ends real processes
//	planted     mistakes as patches, to see that sim notices them
//
// docs/testing.md says how to run them, docs/evidence.md what is proved.
package proof
