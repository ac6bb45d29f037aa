// Package config is what the rooms of all replicas of one node share, and what they go by: the
// node's clock, disks, metrics and limits (Node), the pools of goroutines (Pool), and what a
// replica needs of its Raft group (Group) and is asked (Pending).
package config
