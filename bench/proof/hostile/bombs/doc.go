// Command bombs sends servers messages that are small on the wire and large in memory, for a while.
// Its caller checks that the servers live and keep to their memory (bench/proof/memory/run.sh).
package main
