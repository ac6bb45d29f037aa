package steps

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestOperatorSteps plays the files in testdata/operator. Commands:
//
//	partition nodes=(1,2,3)                    it has voters on these nodes, the first one leads
//	operator [add=NODE] [remove=NODE] [lead] [to=NODE]
//	                                           what is to be done; to is the node that is to lead
//	split at=KEY                               the same: the partition is to split
//	down nodes=(2,3)                           they cannot be handed the lead; without nodes: all
//	                                           can
//	slow nodes=(2,3)                           their disks are slow
//	leader node=2                              it leads now, by an election
//	cancel                                     the operator is taken back
//	step [n=1]                                 the next step is carried out, and printed with what
//	                                           comes of it
func TestOperatorSteps(t *testing.T) {
	datadriven.Walk(t, "testdata/operator", func(t *testing.T, path string) {
		var d *clusterpb.Partition
		var o *serverpb.Operator
		var leader uint64
		var down, slow []uint64
		datadriven.RunTest(t, path, func(t *testing.T, c *datadriven.TestData) string {
			switch c.Cmd {
			case "partition":
				d = wholePartition()
				for i, node := range nodesArg(t, c) {
					d.Replicas = append(d.Replicas, &clusterpb.Replica{Node: node, Replica: uint64(i + 1)})
				}
				leader = d.Replicas[0].Node
			case "operator":
				o = &serverpb.Operator{Id: 1, Lead: c.HasArg("lead")}
				if c.HasArg("to") {
					c.ScanArgs(t, "to", &o.LeadNode)
					o.LeadReplica = ReplicaAt(d, keys.NodeID(o.LeadNode)).Replica
				}
				if c.HasArg("add") {
					c.ScanArgs(t, "add", &o.AddNode)
					o.AddReplica = NextReplica(d)
				}
				if c.HasArg("remove") {
					var node uint64
					c.ScanArgs(t, "remove", &node)
					o.RemoveReplica = ReplicaAt(d, keys.NodeID(node)).Replica
				}
			case "split":
				var at string
				c.ScanArgs(t, "at", &at)
				var err error
				if o, err = NewSplit(d, keys.InternalKey(d, []byte(at))); err != nil {
					return err.Error() + "\n"
				}
				o.Child = d.Id + 1
			case "down":
				down = nodesArg(t, c)
			case "slow":
				slow = nodesArg(t, c)
			case "leader":
				c.ScanArgs(t, "node", &leader)
			case "cancel":
				o.Cancelled, o.CancelledAt = true, d.Membership
			case "step":
				n := 1
				c.MaybeScanArgs(t, "n", &n)
				var out strings.Builder
				for range n {
					next := Next(o, d, keys.NodeID(leader), ranksOf(down, slow))
					fmt.Fprintln(&out, next.Text)
					if next.Order == nil {
						break
					}
					if to := next.Order.TransferTo; to != 0 {
						leader = ReplicaOf(d, to).Node
					} else {
						d = proto.Clone(next.Order.Target).(*clusterpb.Partition)
					}
					fmt.Fprintf(&out, "  %s\n", replicasLine(d, leader))
					if child := next.Order.Child; child != nil {
						fmt.Fprintf(&out, "  %s\n  %s\n", spanLine(d), spanLine(child))
					}
				}
				return out.String()
			default:
				c.Fatalf(t, "there is no such command")
			}
			return replicasLine(d, leader) + "\n"
		})
	})
}

// ranksOf ranks nodes of which some do not answer, and some have slow disks.
func ranksOf(down, slow []uint64) func(node uint64) Rank {
	return func(node uint64) Rank {
		return RankNode(&clusterpb.Node{}, !slices.Contains(down, node),
			&clusterpb.NodeStats{DiskSlow: slices.Contains(slow, node)})
	}
}

func nodesArg(t *testing.T, c *datadriven.TestData) (nodes []uint64) {
	if c.HasArg("nodes") {
		for i := range c.CmdArgs[0].Vals {
			var node uint64
			c.CmdArgs[0].Scan(t, i, &node)
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// wholePartition is the only partition of a range keyspace, without replicas.
func wholePartition() *clusterpb.Partition {
	prefix := keys.KeyspacePrefix(1)
	return &clusterpb.Partition{Id: 100, Keyspace: 1, Generation: 1, Membership: 1,
		PrefixLength: keys.KeyspacePrefixLength, Start: prefix, End: keys.PrefixEnd(prefix)}
}

// spanLine is what a split says of a partition.
func spanLine(d *clusterpb.Partition) string {
	text := fmt.Sprintf("%s at %d.%d: %s, next replica %d", keys.PartitionID(d.Id), d.Generation,
		d.Membership, keys.PartitionUserSpan(d), NextReplica(d))
	if d.SplitFrom != 0 {
		text += fmt.Sprintf(", split from %s", keys.PartitionID(d.SplitFrom))
	}
	return text
}

// replicasLine is a descriptor on one line.
func replicasLine(d *clusterpb.Partition, leader uint64) string {
	var parts []string
	for _, r := range d.Replicas {
		text := fmt.Sprintf("%d on %d: %s", r.Replica, r.Node, strings.ToLower(r.Role.String()))
		if r.Node == leader {
			text += ", leads"
		}
		if Wanted(d) == r.Replica {
			text += ", is to lead"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
