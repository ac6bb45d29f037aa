// Package admin administers a cluster: it shows its state, and changes placement.
//
//	cluster := admin.New(client) // of kv.Open
//	nodes, err := cluster.Nodes(ctx)
//	for _, n := range nodes {
//		fmt.Println(n.ID, n.Address, n.Alive, n.Replicas)
//	}
//	progress, err := cluster.SetNodeStatus(ctx, 4, admin.NodeDraining)
//
// Keyspaces, Nodes, Partitions, Operators, Events, Core and Status show the parts of the cluster,
// and the Why methods explain them. SplitPartition, MergePartition, MoveReplica, TransferLeader,
// SetNodeStatus, ChangeCore and the settings of placement change them: such a call returns when the
// change is recorded, and the cluster carries it out whatever happens to the caller. Transactions
// and AbortTransaction find and abort transactions that block others.
//
// Package kv creates, alters and drops keyspaces, because it has their options
// (kv.Client.CreateKeyspace). While authentication is enabled, most calls need the role root.
//
// Calls have the deadlines and retries of package kv, and all errors are *kv.Error.
package admin
