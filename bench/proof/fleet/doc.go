// Package fleet runs clusters of separate server processes for tests that break them. A Cluster
// has Servers with addresses and directories that outlive their processes. A Disk is a small
// filesystem that can be filled and stalled. Admin asks the cluster about itself, and Metrics
// reads a server's metrics. Packages faults and nemesis decide what is broken, and when.
package fleet
