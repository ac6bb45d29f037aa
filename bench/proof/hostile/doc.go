// Command hostile lets hostile clients abuse three servers under load for a while, and reports the
// effects: `make hostile MINUTES=60 SEED=1 TLS=1`.
//
// Honest clients write and read all the time. They are measured in calm, and during rounds of
// abuse. A round runs several acts of package abuse at a time, drawn from the seed. A calm follows
// each round, so that calm and abuse are measured on the same machine in the same hour. These are
// violations: a server ends; its memory grows beyond the bound; a stranger is accepted as a server;
// or after a restart of all servers an acknowledged write is lost. The latency of honest clients is
// compared with the latency in calm: the goal is at most twice the 99th percentile. The attackers
// are a process of their own with the lowest priority.
//
// With -sink the same acts are played against listeners that only read. This shows the effect of
// the attackers' use of the machine, which attackers, servers and honest clients share.
package main
