// Package admin administers a cluster: it shows what there is, and changes where it lies.
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
// change is recorded, and the cluster carries it out whatever becomes of the caller. Transactions
// and AbortTransaction are for transactions that are in the way.
//
// Keyspaces are created, altered and dropped by package kv, which has their options
// (kv.Client.CreateKeyspace). While authentication is enabled, most calls need the role root.
//
// The calls are made, bounded and tried again as those of package kv are, and all errors are
// *kv.Error.
package admin
