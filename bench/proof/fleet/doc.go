// Package fleet runs clusters of separate server processes for fault tests. A Cluster has Servers
// with addresses and directories that outlive their processes. A Disk is a small filesystem that
// can be filled and stalled. Admin asks the cluster about its state, and Metrics reads a server's
// metrics. Packages faults and nemesis decide which faults happen, and when.
package fleet
