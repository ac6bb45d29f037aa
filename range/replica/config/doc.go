// Package config holds what the rooms of all replicas of one node share: the node's clock, disks,
// metrics and limits (Node), the pools of goroutines (Pool), the interface of a replica's Raft
// group (Group), and a request on its way (Pending).
package config
