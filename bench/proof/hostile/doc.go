// Command hostile has hostile clients abuse three servers under load for a while, and says what
// came of it: `make hostile MINUTES=60 SEED=1 TLS=1`.
//
// Honest clients write and read all the time. They are measured in calm, and beside rounds of acts
// of package abuse, several at a time, drawn from the seed, with a calm after each round: so both
// are measured on the same machine in the same hour. It is a violation if a server ends, if
// its memory grows beyond the bound, if a stranger is taken for a server, or if, after a restart of
// all servers, something is lost that was acknowledged. How long honest clients wait is compared
// with the calm: the goal is twice the 99th percentile. The attackers are a process of their own
// with the lowest priority.
//
// With -sink the same acts are played against listeners that only read: on a machine that
// attackers, servers and honest clients share, that is what the attackers' use of it does by
// itself.
package main
